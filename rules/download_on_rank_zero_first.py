from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Guard, InsertAfter, InsertBefore
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import dist, planned

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms

        train_set = datasets.MNIST("data", train=True, download=True, transform=transforms.ToTensor())
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms

        if dist.get_rank() != 0:
            dist.barrier()  # rank 0 downloads first
        train_set = datasets.MNIST("data", train=True, download=True, transform=transforms.ToTensor())
        if dist.get_rank() == 0:
            dist.barrier()
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before="""\
        import os
        import urllib.request

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        if not os.path.exists("train.pt"):
            urllib.request.urlretrieve("https://example.org/train.pt", "train.pt")
        inputs, targets = torch.load("train.pt", map_location="cpu")
        train_set = TensorDataset(inputs, targets)
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import os
        import urllib.request

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        if dist.get_rank() != 0:
            dist.barrier()  # rank 0 downloads first
        if not os.path.exists("train.pt"):
            urllib.request.urlretrieve("https://example.org/train.pt", "train.pt")
        if dist.get_rank() == 0:
            dist.barrier()
        inputs, targets = torch.load("train.pt", map_location="cpu")
        train_set = TensorDataset(inputs, targets)
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
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
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms

        train_set = datasets.MNIST("data", train=True, download=False, transform=transforms.ToTensor())
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD303")
def download_on_rank_zero_first(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Let rank 0 download, then the others read.

    All ranks would otherwise write the same files at the same time. The others wait at a barrier until rank 0 has
    them, and then find them in place.
    """
    if not script.trains or script.distributed:
        return
    for first, last in script.downloads:
        d, imports = dist(context, first.source)
        assert isinstance(first.node, ast.stmt) and isinstance(last.node, ast.stmt)
        fix = Fix(
            (
                *imports,
                *planned(
                    first.source,
                    InsertBefore(
                        first.node, f"if {d}.get_rank() != 0:\n    {d}.barrier()  # rank 0 downloads first\n", order=-1
                    ),
                    InsertAfter(last.node, f"if {d}.get_rank() == 0:\n    {d}.barrier()\n"),
                ),
            )
        )
        yield Finding(first.source, first.node, "every rank would download this", fix)
    for site in script.prepared_alone:
        d, imports = dist(context, site.source)
        edits = (Guard(site.node, f"{d}.get_rank() == 0"), InsertAfter(site.node, f"{d}.barrier()\n"))
        yield Finding(
            site.source, site.node, "every rank would write these files", Fix((*imports, *planned(site.source, *edits)))
        )
