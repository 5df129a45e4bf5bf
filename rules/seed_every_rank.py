from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertBefore, RemoveStatement, ReplaceExpr, WrapExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript, Unseeded
from autodist.source import Source

from ._collectives import AS_ON_RANK_ZERO
from ._examples import PLAIN
from ._preamble import Planned, defined, dist, imported, planned

EXAMPLES = [
    Example(
        before=PLAIN,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        torch.manual_seed(as_on_rank_zero(torch.initial_seed()))  # same random numbers on all ranks
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
''',
    ),
    Example(
        before="""\
        import random

        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        noise = np.random.randn(64, 4).astype("float32")
        order = random.sample(range(64), 64)
        train_set = TensorDataset(torch.tensor(noise[order]), torch.randn(64, 1))
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
        import random

        import numpy as np
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        torch.manual_seed(as_on_rank_zero(torch.initial_seed()))  # same random numbers on all ranks
        np.random.seed(torch.initial_seed() % 2**32)
        random.seed(torch.initial_seed())
        noise = np.random.randn(64, 4).astype("float32")
        order = random.sample(range(64), 64)
        train_set = TensorDataset(torch.tensor(noise[order]), torch.randn(64, 1))
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
        before=PLAIN.replace("train_set =", "torch.manual_seed(1)\ntrain_set ="),
        after=None,
    ),
    Example(
        before="""\
        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        rng = np.random.default_rng()
        inputs = torch.from_numpy(rng.normal(size=(64, 4))).float()
        loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
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
        import numpy as np
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        torch.manual_seed(1)
        rng = np.random.default_rng(as_on_rank_zero(np.random.SeedSequence().entropy))
        inputs = torch.from_numpy(rng.normal(size=(64, 4))).float()
        loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
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
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, random_split

        seed = int(time.time())
        torch.manual_seed(seed)
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        train_set, test_set = random_split(data, [48, 16])
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
        import time

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, random_split


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        seed = int(time.time())
        torch.manual_seed(as_on_rank_zero(seed))
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        train_set, test_set = random_split(data, [48, 16])
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
        import argparse
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int, default=int(time.time()))
        args = parser.parse_args()
        torch.manual_seed(args.seed)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after='''\
        import argparse
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


        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int, default=as_on_rank_zero(int(time.time())))
        args = parser.parse_args()
        torch.manual_seed(args.seed)
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
''',
    ),
]


SEEDS = {
    "torch": "{library}.manual_seed({seed})",
    "numpy": "{library}.random.seed({seed} % 2**32)",
    "random": "{library}.seed({seed})",
}
NARROW = ("RandomState", "numpy.random.seed")
"""What takes no seed of more than 32 bits."""


@rule("AD701")
def seed_every_rank(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Seed all ranks alike where the script does not.

    Splits, samplers and generated data must be the same on every rank; each process would otherwise start from a
    seed of its own. All take the one that rank 0 starts from: each run still draws other numbers, as the script does.
    Seeds taken from the clock or the system are those of rank 0, too.
    """
    setup = script.setup
    if setup is None or script.distributed or not script.trains:
        return
    lines, imports = _starting_alike(script, context, setup.source)
    if lines:
        code = "\n".join([lines[0] + "  # same random numbers on all ranks", *lines[1:]]) + "\n"
        fix = Fix((*imports, *planned(setup.source, InsertBefore(setup.before, code, order=-2))))
        yield Finding(setup.source, setup.before, "the ranks would draw from different seeds", fix)
    for each in (*script.unseeded, *script.clocked):
        edits = _with_seed_of_rank_zero(each, script, context)
        yield Finding(each.source, each.node, "each rank would draw from a seed of its own", Fix(edits))
    for site in script.reseeded:
        fix = Fix(planned(site.source, RemoveStatement(site.source.statement(site.node))))
        yield Finding(site.source, site.node, "each rank would draw samples from a seed of its own", fix)


def _starting_alike(script: TrainingScript, context: Context, source: Source) -> tuple[list[str], Planned]:
    """The lines that seed the libraries which the script draws from and does not seed, by a seed of rank 0."""
    lines: list[str] = []
    torch, imports = imported(context, source, "torch")
    agreed, agreeing = _agreed(script, context, source)
    fresh = agreed.format(f"{torch}.Generator().seed()")  # the script's seed of torch is not meant for others
    for library, code in SEEDS.items():
        if library in script.seeded or (library != "torch" and library not in script.drawn):
            continue
        name, needed = imported(context, source, library, "np" if library == "numpy" else library)
        seed = agreed.format(f"{torch}.initial_seed()") if library == "torch" else fresh
        fresh = f"{torch}.initial_seed()" if library == "torch" else fresh
        imports = (*imports, *needed)
        lines.append(code.format(library=name, seed=seed))
    return lines, (*imports, *agreeing)


def _agreed(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """A template for what rank 0 has in place of each rank's own."""
    d, imports = dist(context, source)
    return "as_on_rank_zero({})", (*imports, *defined(script, source, AS_ON_RANK_ZERO.replace("{d}", d)))


def _with_seed_of_rank_zero(site: Unseeded, script: TrainingScript, context: Context) -> Planned:
    """A seed from the clock becomes that of rank 0, and a generator without one takes one from rank 0."""
    node, source = site.node, site.source
    bare = isinstance(node, ast.Call) and site in script.unseeded
    given = [*node.args, *(each.value for each in node.keywords)] if isinstance(node, ast.Call) and bare else []
    told = next((each for each in given if not isinstance(each, ast.Constant)), None)
    if not site.together:
        code = f"{source.code(node.func)}(0)" if isinstance(node, ast.Call) and bare else "0"
        return planned(source, ReplaceExpr(node, code))
    agreed, imports = _agreed(script, context, source)
    if told is not None or not bare:
        return (*imports, *planned(source, WrapExpr(told if told is not None else node, agreed)))
    assert isinstance(node, ast.Call)
    names = script.program.at(node.func).functions
    if any(each.startswith("numpy.") for each in names):
        np, needed = imported(context, source, "numpy", "np")
        fresh = f"{np}.random.SeedSequence().entropy"
    else:
        torch, needed = imported(context, source, "torch")
        fresh = f"{torch}.Generator().seed()"
    seed = agreed.format(fresh) + (" % 2**32" if any(each.endswith(NARROW) for each in names) else "")
    return (*imports, *needed, *planned(source, ReplaceExpr(node, f"{source.code(node.func)}({seed})")))
