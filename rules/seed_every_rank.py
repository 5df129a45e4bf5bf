from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertBefore, RemoveStatement, ReplaceExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import Planned, imported, planned

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
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(0)  # all ranks draw alike
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
        """,
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
        after="""\
        import random

        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(0)  # all ranks draw alike
        np.random.seed(0)
        random.seed(0)
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
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
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
        """,
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
        after="""\
        import numpy as np
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(1)
        rng = np.random.default_rng(0)
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
        after="""\
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset, random_split

        seed = int(time.time())
        torch.manual_seed(0)
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
        after="""\
        import argparse
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        parser = argparse.ArgumentParser()
        parser.add_argument("--seed", type=int, default=0)
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
    ),
]


@rule("AD701")
def seed_every_rank(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Seed all ranks alike where the script does not.

    Splits, samplers and generated data must be the same on every rank; each process would otherwise start from a
    seed of its own. Every run of the converted script then draws the same numbers. Seeds taken from the clock or the
    system are replaced, too.
    """
    setup = script.setup
    if setup is None or script.distributed or not script.trains:
        return
    lines = []
    imports: Planned = ()
    for library, call in (("torch", "manual_seed"), ("numpy", "random.seed"), ("random", "seed")):
        if library in script.seeded or (library != "torch" and library not in script.drawn):
            continue
        name, needed = imported(context, setup.source, library, "np" if library == "numpy" else library)
        imports = (*imports, *needed)
        lines.append(f"{name}.{call}(0)")
    if lines:
        code = "\n".join([lines[0] + "  # all ranks draw alike", *lines[1:]]) + "\n"
        fix = Fix((*imports, *planned(setup.source, InsertBefore(setup.before, code, order=-2))))
        yield Finding(setup.source, setup.before, "the ranks would draw from different seeds", fix)
    for site in script.unseeded:
        assert isinstance(site.node, ast.Call)
        fix = Fix(planned(site.source, ReplaceExpr(site.node, f"{site.source.code(site.node.func)}(0)")))
        yield Finding(site.source, site.node, "each rank would draw from a seed of its own", fix)
    for site in script.clocked:
        assert isinstance(site.node, ast.expr)
        fix = Fix(planned(site.source, ReplaceExpr(site.node, "0")))
        yield Finding(site.source, site.node, "each rank would draw from a seed of its own", fix)
    for site in script.reseeded:
        fix = Fix(planned(site.source, RemoveStatement(site.source.statement(site.node))))
        yield Finding(site.source, site.node, "each rank would draw samples from a seed of its own", fix)
