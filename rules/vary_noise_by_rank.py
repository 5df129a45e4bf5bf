from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from autodist.edits import Edit, InsertAfter, InsertBefore, RemoveArgument, ReplaceExpr, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import SampleGenerator, TrainingScript
from autodist.source import argument

from ._collectives import DRAWN_BY_RANK_ZERO
from ._examples import PLAIN
from ._preamble import defined, dist, imported, planned

DECIDED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
x, y = torch.randn(16, 4), torch.randn(16, 1)
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)

for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        scheduler.step(nn.functional.mse_loss(model(x + torch.randn(16, 4)), y))
"""
"""An evaluation whose noise decides about the learning rate: AD608 lets rank 0 decide, so that ranks may go apart."""
DECIDED_APART = DECIDED.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1).replace(
    "for epoch",
    "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank\nfor epoch",
)

RECURRENT = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


train_set = TensorDataset(torch.randn(64, 3, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
APART = RECURRENT.replace(
    "for epoch",
    "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank\nfor epoch",
)

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
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
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank
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
        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        np.random.seed(1)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                noise = torch.from_numpy(np.random.normal(0, 1, (x.shape[0], 4))).float()
                loss = nn.functional.mse_loss(model(x + noise), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after="""\
        import numpy as np
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        np.random.seed(1)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank
        np.random.seed(torch.initial_seed() % 2**32)
        for epoch in range(2):
            for x, y in loader:
                noise = torch.from_numpy(np.random.normal(0, 1, (x.shape[0], 4))).float()
                loss = nn.functional.mse_loss(model(x + noise), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
    ),
    Example(
        before=PLAIN.replace("train_set =", "torch.manual_seed(1)\ntrain_set ="),
        after=None,
    ),
    Example(before=DECIDED, after=DECIDED_APART),
    Example(before=RECURRENT, after=APART),
    Example(before=RECURRENT.replace(", dropout=0.2", ""), after=None),
]

SEEDS = {
    "numpy": "{library}.random.seed({torch}.initial_seed() % 2**32)\n",
    "random": "{library}.seed({torch}.initial_seed())\n",
    "imgaug": "{library}.seed({torch}.initial_seed() % 2**32)\n",
}


@rule("AD702")
def vary_noise_by_rank(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Draw different noise on each rank.

    Once model and data are made, which must be alike, dropout masks and noise should differ between ranks as they
    differ between the samples of one batch: whatever generator they are drawn from. Layers and transforms of libraries
    of which nothing is known may draw from any. Where noise in an evaluation decides about the learning rate or when to
    stop, the ranks go on drawing alike, so that they agree. What a step draws once for its whole batch (a number by
    which it decides, a length, a vector that is added to all samples) rank 0 draws for all of them. A `worker_init_fn`
    that seeds workers by a number which all ranks have adds the rank to it, as does a generator that a data set keeps
    for its samples: once it has drawn its split, which all ranks must have alike. A loader whose workers augment is not
    given a generator that all ranks seed alike.
    """
    if not script.trains or script.distributed:
        return
    for site in script.diverge:
        d, imports = dist(context, site.source)
        torch, torch_import = imported(context, site.source, "torch")
        more = []
        for library in sorted(script.noise & SEEDS.keys()):
            name, library_import = imported(context, site.source, library)
            torch_import = (*torch_import, *library_import)
            more.append(SEEDS[library].format(library=name, torch=torch))
        what = "samples and dropout" if script.own_draws else "dropout and noise"
        # no rank begins the script's own stream anew: it would draw its data once more
        code = f"{torch}.manual_seed({torch}.initial_seed() + 1 + {d}.get_rank())  # {what} differ by rank\n"
        code += "".join(more)
        if site.again:  # rank 0 goes on, as it would repeat itself
            code = f"if {d}.get_rank() > 0:\n" + textwrap.indent(code, "    ")
        fix = Fix((*imports, *torch_import, *planned(site.source, InsertBefore(site.node, code))))
        yield Finding(site.source, site.node, "every rank would draw the same noise", fix)
    for made, several in script.sample_generators.items():
        assert isinstance(made.node, ast.Call)
        seed_of = next((each for name in ("seed", "x") if (each := argument(made.node, name, 0)) is not None), None)
        if seed_of is not None and not isinstance(seed_of, (ast.List, ast.Tuple)):
            d, imports = dist(context, made.source)
            rank = f"1000 * {d}.get_rank()" if several else f"{d}.get_rank()"  # whose seeds are no other rank's
            fix = Fix((*imports, *planned(made.source, WrapExpr(seed_of, f"{{}} + {rank}"))))
            yield Finding(made.source, made.node, "every rank would draw the same noise for its samples", fix)
    for kept in script.kept_generators:
        d, imports = dist(context, kept.source)
        if kept.seed is None:
            code = f"{kept.name}.manual_seed({kept.name}.initial_seed() + 1 + {d}.get_rank())"
        else:
            code = f"{kept.name} = {_seeded_by_rank(kept, d)}"
        code += "  # what is drawn for samples differs by rank\n"
        fix = Fix((*imports, *planned(kept.source, InsertAfter(kept.last, code))))
        yield Finding(kept.source, kept.node, "every rank would draw the same noise for its samples", fix)
    yield from _of_workers(script, context)
    for drawn in script.drawn_for_all:
        d, imports = dist(context, drawn.source)
        ranks = f"{d}.get_world_size()"
        edits: list[Edit] = [WrapExpr(drawn.rows, f"{{}}[{d}.get_rank() :: {ranks}]")]
        edits += [WrapExpr(count, f"{{}} * {ranks}") for count in drawn.counts]
        if drawn.shape is not None:
            shape = drawn.source.code(drawn.shape)
            edits.append(ReplaceExpr(drawn.shape, f"({shape}[0] * {ranks}, *{shape}[1:])"))
        if drawn.like is not None:
            edits.append(WrapExpr(drawn.like, f"{{}}.repeat_interleave({ranks}, 0)"))
        fix = Fix((*imports, *planned(drawn.source, *edits)))
        yield Finding(
            drawn.source, drawn.node, "all ranks draw alike: for the samples of all, of which each has its own", fix
        )
    shared = {draw.node for draw in script.draws}
    for common in script.common_draws:
        if common.node in shared:
            continue  # of which each rank takes its rows
        assert isinstance(common.node, ast.expr)
        d, imports = dist(context, common.source)
        helper = defined(script, common.source, DRAWN_BY_RANK_ZERO.replace("{d}", d))
        fix = Fix((*imports, *helper, *planned(common.source, WrapExpr(common.node, "drawn_by_rank_zero({})"))))
        yield Finding(common.source, common.node, "every rank would draw its own, and one serves the whole batch", fix)
    yield from raised(script, "AD702")


def _of_workers(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """What seeds the workers of all ranks alike."""
    for seed in script.worker_seeds:
        os, os_import = imported(context, seed.source, "os")
        # a worker that is not forked has no process group, and torchrun's environment all the same
        edit = WrapExpr(seed.node, f'{{}} + 1000 * int({os}.environ.get("RANK", 0))')
        fix = Fix((*os_import, *planned(seed.source, edit)))
        yield Finding(seed.source, seed.node, "the workers of every rank would draw the same noise", fix)
    for loader in script.worker_generators:
        fix = Fix(planned(loader.source, RemoveArgument(loader.node, "generator", 12)))
        yield Finding(
            loader.source, loader.node, "the workers of every rank would be seeded alike by this generator", fix
        )


def _seeded_by_rank(kept: SampleGenerator, d: str) -> str:
    """The call that makes a generator, with a seed that no rank has drawn from."""
    assert kept.seed is not None
    known = isinstance(kept.seed, ast.Constant) and isinstance(kept.seed.value, int)
    start = str(kept.seed.value + 1) if known else f"{kept.source.code(kept.seed)} + 1"  # type: ignore[attr-defined]
    return f"{kept.source.code(kept.node.func)}({start} + {d}.get_rank())"
