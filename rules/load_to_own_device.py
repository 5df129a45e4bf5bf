from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import SetArgument
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).to(device)
        model.load_state_dict(torch.load("pretrained.pt"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1).to(device)
        model.load_state_dict(torch.load("pretrained.pt", map_location=device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        model.load_state_dict(torch.load("pretrained.pt"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        device = torch.device("cpu")  # not there yet where the model is loaded
        print(model(torch.ones(1, 4, device=device)))
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        device = torch.device("cpu")  # not there yet where the model is loaded
        print(model(torch.ones(1, 4, device=device)))
        """,
    ),
    Example(
        before=PLAIN.replace("optimizer =", 'model.load_state_dict(torch.load("pretrained.pt"))\noptimizer ='),
        after=PLAIN.replace(
            "optimizer =", 'model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))\noptimizer ='
        ),
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        x, y = torch.load("data.pt")
        loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, pin_memory=True)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        x, y = torch.load("data.pt", map_location={"cuda:0": "cuda"})
        loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, pin_memory=True)
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN.replace(
            "optimizer =", 'model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))\noptimizer ='
        ),
        after=None,
    ),
]


@rule("AD305")
def load_to_own_device(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Load checkpoints to the rank's own device.

    Without `map_location` tensors go back to the device that saved them, so every rank fills the memory of GPU 0.
    States of modules and optimizers may go anywhere. Of anything else, what was saved on the CPU stays there: loaders
    cannot pin or send what lies on a GPU, and states of random generators are read on the CPU alone.
    """
    if not script.trains:
        return
    for site, device in script.loads:
        fix = Fix(planned(site.source, SetArgument(site.node, "map_location", device, 1)))
        yield Finding(site.source, site.node, "every rank would load to the device that saved the file", fix)
