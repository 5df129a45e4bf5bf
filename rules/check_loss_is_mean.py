from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, rule
from autodist.script import TrainingScript

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0]))

        for epoch in range(2):
            for x, y in loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0]))

        for epoch in range(2):
            for x, y in loader:
                loss = criterion(model(x), y)
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

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1).relu())
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                mask = (y != 0).float()
                mask /= mask.mean()
                loss = ((model(x) - y).abs() * mask).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1).relu())
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                mask = (y != 0).float()
                mask /= mask.mean()
                loss = ((model(x) - y).abs() * mask).mean()
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

        train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        criterion = nn.CrossEntropyLoss()

        for epoch in range(2):
            for x, y in loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD602")
def check_loss_is_mean(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say where averaging gradients is not exact.

    Averaging over ranks gives the gradient of a mean over samples. A mean that is weighted by class, or leaves tokens
    out, divides by what happens to be in each rank's share; the difference is small, but it is there. So is that of
    batch statistics over data that every rank passes in full through a model in training mode.
    """
    for concern in script.concerns:
        if concern.code == "AD602":
            yield Finding(concern.source, concern.node, concern.message, severity=concern.severity)
