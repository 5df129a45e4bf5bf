from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Enclose, Guard, InsertAfter
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import Source, walk

from ._preamble import Planned, defined, dist, free_name, imported, planned

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
        after='''\
        import contextlib
        import os

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms


        @contextlib.contextmanager
        def rank_zero_first():
            """Rank 0 first, then local rank 0 of each other node, then the rest, who find the files in place."""
            turn = 0 if dist.get_rank() == 0 else 1 if os.environ["LOCAL_RANK"] == "0" else 2
            for _ in range(turn):
                dist.barrier()
            yield
            for _ in range(turn, 2):
                dist.barrier()


        with rank_zero_first():
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
        ''',
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
        after='''\
        import contextlib
        import os
        import urllib.request

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        @contextlib.contextmanager
        def rank_zero_first():
            """Rank 0 first, then local rank 0 of each other node, then the rest, who find the files in place."""
            turn = 0 if dist.get_rank() == 0 else 1 if os.environ["LOCAL_RANK"] == "0" else 2
            for _ in range(turn):
                dist.barrier()
            yield
            for _ in range(turn, 2):
                dist.barrier()


        with rank_zero_first():
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
        ''',
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
    """Let rank 0 download, then one rank of each other node, then the others read.

    All ranks would otherwise write the same files at the same time. The others wait at barriers until the files are
    there: on the disk of their own node, or on one that all nodes share. What is fetched whether it is there or not is
    fetched by one rank of each node, one node after the other.
    """
    if not script.trains or script.distributed:
        return
    for first, last in script.downloads:
        helper = _rank_zero_first(script, context, first.source)
        assert isinstance(first.node, ast.stmt) and isinstance(last.node, ast.stmt)
        block = first.source.block(first.node)
        stretch = block[block.index(first.node) : block.index(last.node) + 1]
        edits = planned(first.source, *(Enclose(each, "with rank_zero_first():\n    ...\n") for each in stretch))
        if any(node in script.fetched_again for each in stretch for node in walk(each)):
            d, _ = dist(context, first.source)
            wait = f"{d}.barrier()  # wait until the last rank has written the files anew\n"
            edits = (*edits, *planned(first.source, InsertAfter(last.node, wait)))
        yield Finding(first.source, first.node, "every rank would download this", Fix((*helper, *edits)))
    for site in script.prepared_alone:
        d, imports = dist(context, site.source)
        edits = planned(
            site.source, Guard(site.node, f"{d}.get_rank() == 0"), InsertAfter(site.node, f"{d}.barrier()\n")
        )
        yield Finding(site.source, site.node, "every rank would write these files", Fix((*imports, *edits)))
    for site in script.fetched_anew:
        d, imports = dist(context, site.source)
        os, os_import = imported(context, site.source, "os")
        turn = free_name(site.source, "rank", "turn")
        template = (
            f"for {turn} in range({d}.get_world_size()):  # one rank of each node, which may have a disk of its own\n"
            f'    if {turn} == {d}.get_rank() and {os}.environ["LOCAL_RANK"] == "0":\n'
            f"        ...\n"
            f"    {d}.barrier()\n"
        )
        fix = Fix((*imports, *os_import, *planned(site.source, Enclose(site.node, template))))
        yield Finding(site.source, site.node, "every rank would write these files", fix)


def _rank_zero_first(script: TrainingScript, context: Context, source: Source) -> Planned:
    """`rank_zero_first`, and the imports it needs."""
    d, edits = dist(context, source)
    os, os_import = imported(context, source, "os")
    contextlib, contextlib_import = imported(context, source, "contextlib")
    code = f'''\
@{contextlib}.contextmanager
def rank_zero_first():
    """Rank 0 first, then local rank 0 of each other node, then the rest, who find the files in place."""
    turn = 0 if {d}.get_rank() == 0 else 1 if {os}.environ["LOCAL_RANK"] == "0" else 2
    for _ in range(turn):
        {d}.barrier()
    yield
    for _ in range(turn, 2):
        {d}.barrier()


'''
    return (*edits, *os_import, *contextlib_import, *defined(script, source, code))
