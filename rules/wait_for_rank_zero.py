from __future__ import annotations

import textwrap
from collections.abc import Iterator

from autodist.edits import InsertBefore
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import dist, planned
from ._shards import finishing

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

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
            torch.save(model.state_dict(), "last.pt")

        model.load_state_dict(torch.load("last.pt", map_location="cpu"))
        print(model(torch.ones(1, 4)).item())
        """,
        after="""\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

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
            torch.save(model.state_dict(), "last.pt")

        dist.barrier()  # wait until rank 0 has written it
        model.load_state_dict(torch.load("last.pt", map_location="cpu"))
        print(model(torch.ones(1, 4)).item())
        """,
    ),
    Example(
        before=(
            PLAIN.replace(
                "for epoch in range(2):\n",
                'model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))\nfor epoch in range(2):\n',
            )
            + 'torch.save(model.state_dict(), "model.pt")\n'
        ),
        after=None,
    ),
]


@rule("AD304")
def wait_for_rank_zero(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Read a file only once rank 0 has written it.

    Rank 0 alone writes; the other ranks may come by before it has finished, and be slower in reading it than rank 0 in
    writing it again. They meet at a barrier first.
    """
    if not script.trains:
        return
    for site in script.waits:
        d, imports = dist(context, site.source)
        code, place = f"{d}.barrier()  # wait until rank 0 has written it\n", script.without_group.get(site.node)
        if place is not None and not place.optional:
            continue  # all ranks write it there, see AD301
        finish, needed = finishing(script, context, site.source)
        if finish:
            code, imports = f"{finish}()  # a checkpoint may still be written\n{code}", (*imports, *needed)
        if place is not None:
            code = f"if {d}.is_initialized():\n{textwrap.indent(code, '    ')}"
        fix = Fix((*imports, *planned(site.source, InsertBefore(site.node, code))))
        yield Finding(site.source, site.node, "rank 0 may still be writing what is read here", fix)
    for site in script.rewrites if not script.distributed else ():
        if site not in script.first_writes:
            d, imports = dist(context, site.source)
            insert = InsertBefore(site.source.statement(site.node), f"{d}.barrier()  # all ranks have read it\n")
            fix = Fix((*imports, *planned(site.source, insert)))
            yield Finding(site.source, site.node, "a slower rank may still be reading what rank 0 writes here", fix)
    for site in script.first_writes if not script.distributed else ():
        d, imports = dist(context, site.source)
        insert = InsertBefore(site.node, f"{d}.barrier()  # wait until all ranks have looked for it\n")
        fix = Fix((*imports, *planned(site.source, insert)))
        yield Finding(site.source, site.node, "a rank that looks for the file later would find what rank 0 writes", fix)
