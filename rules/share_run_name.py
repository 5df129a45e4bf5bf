from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertAfter, InsertBefore, Prepend, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import Site, TrainingScript

from ._collectives import AS_ON_RANK_ZERO
from ._preamble import Planned, defined, dist, planned

EXAMPLES = [
    Example(
        before="""\
        import os
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        run = os.path.join("runs", time.strftime("%Y%m%d-%H%M%S"))
        os.makedirs(run, exist_ok=True)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), os.path.join(run, "last.pt"))
        model.load_state_dict(torch.load(os.path.join(run, "last.pt"), map_location="cpu"))
        """,
        after='''\
        import os
        import time

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        run = os.path.join("runs", as_on_rank_zero(time.strftime("%Y%m%d-%H%M%S")))
        os.makedirs(run, exist_ok=True)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), os.path.join(run, "last.pt"))
        model.load_state_dict(torch.load(os.path.join(run, "last.pt"), map_location="cpu"))
        ''',
    ),
    Example(
        before="""\
        import os
        from tempfile import TemporaryDirectory

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        with TemporaryDirectory() as folder:
            for epoch in range(2):
                for x, y in loader:
                    loss = nn.functional.mse_loss(model(x), y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
            model.load_state_dict(torch.load(os.path.join(folder, "last.pt"), map_location="cpu"))
        """,
        after='''\
        import os
        from tempfile import TemporaryDirectory

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        with TemporaryDirectory() as folder:
            folder = as_on_rank_zero(folder)
            for epoch in range(2):
                for x, y in loader:
                    loss = nn.functional.mse_loss(model(x), y)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
            model.load_state_dict(torch.load(os.path.join(folder, "last.pt"), map_location="cpu"))
            dist.barrier()  # rank 0 deletes its folder at the end of this block
        ''',
    ),
    Example(  # only rank 0 writes there, and nobody reads
        before="""\
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), time.strftime("%Y%m%d.pt"))
        """,
        after=None,
    ),
]


@rule("AD307")
def share_run_name(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give all ranks the name that rank 0 takes from the clock.

    A folder called after the time, a random number or a process has another name on each rank. Only rank 0 writes into
    its own, so that the others would not find what they read back at the end.
    """
    if not script.trains or script.distributed:
        return
    for site in script.named_apart:
        d, imports = dist(context, site.source)
        helper = defined(script, site.source, AS_ON_RANK_ZERO.replace("{d}", d))
        fix = Fix((*imports, *helper, *_agreed(site, d)))
        yield Finding(
            site.source, site.node, "each rank would take another name, and read where rank 0 has not written", fix
        )
    yield from raised(script, "AD307")


def _agreed(site: Site, d: str) -> Planned:
    """The edits that make ranks agree on a name, or on a folder that goes with its `with` block."""
    block = site.statement
    item = next((i for i in block.items if i.context_expr is site.node), None) if isinstance(block, ast.With) else None
    if item is None or not isinstance(item.optional_vars, ast.Name) or not isinstance(block, ast.With):
        return planned(site.source, WrapExpr(site.node, "as_on_rank_zero({})"))
    name = item.optional_vars.id
    last = block.body[-1]
    barrier = f"{d}.barrier()  # rank 0 deletes its folder at the end of this block\n"
    leave = InsertBefore(last, barrier) if isinstance(last, ast.Return) else InsertAfter(last, barrier)
    return planned(site.source, Prepend(block, f"{name} = as_on_rank_zero({name})\n"), leave)
