from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import REPLICATED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import imported, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)
                places = torch.linspace(0, 1, 20).view(5, 4)
                places = places.unsqueeze(0).transpose(0, 1)
                self.register_buffer("places", places)

            def forward(self, x):
                return self.layer(x + self.places[2])


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)
                places = torch.linspace(0, 1, 20).view(5, 4)
                places = places.unsqueeze(0).transpose(0, 1)
                self.register_buffer("places", places.clone(memory_format=torch.contiguous_format))

            def forward(self, x):
                return self.layer(x + self.places[2])


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
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


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)
                self.register_buffer("places", torch.linspace(0, 1, 20).view(5, 4).unsqueeze(1))

            def forward(self, x):
                return self.layer(x + self.places[2])


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD408", *REPLICATED)
def lay_out_buffers(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Lay buffers out in memory in the order of their axes.

    DistributedDataParallel broadcasts buffers in each forward pass, and cannot where an axis of one element was turned
    to another place, as in most positional encodings (https://github.com/pytorch/pytorch/issues/68407).
    """
    if not script.trains or script.distributed:
        return
    for site in script.turned_buffers:
        torch, imports = imported(context, site.source, "torch")
        assert isinstance(site.node, ast.expr)
        template = f"{{}}.clone(memory_format={torch}.contiguous_format)"
        fix = Fix((*imports, *planned(site.source, WrapExpr(site.node, template))))
        yield Finding(site.source, site.node, "a buffer with turned axes cannot be broadcast", fix)
