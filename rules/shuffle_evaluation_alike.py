from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import SetArgument
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import argument

from ._orders import generator
from ._preamble import planned

RANDOM_SAMPLER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

data = TensorDataset(torch.randn(94, 4), torch.randn(94, 1))
train_loader = DataLoader(data, batch_size=8, shuffle=True)
chosen = range(64, 94)
tests = DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(chosen))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in train_loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, sum(nn.functional.mse_loss(model(x), y).item() for x, y in tests))
"""

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        tests = DataLoader(test_set, 8, shuffle=True, drop_last=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                print(epoch, sum(nn.functional.mse_loss(model(x), y).item() for x, y in tests))
        """,
        after="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        tests = DataLoader(
            test_set,
            8,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(torch.initial_seed()),
        )
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                print(epoch, sum(nn.functional.mse_loss(model(x), y).item() for x, y in tests))
""",
    ),
    Example(
        before=RANDOM_SAMPLER,
        after=RANDOM_SAMPLER.replace(
            "SubsetRandomSampler(chosen))",
            """SubsetRandomSampler(
    chosen,
    generator=torch.Generator().manual_seed(torch.initial_seed()),
))""",
        ),
    ),
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        test_set = TensorDataset(torch.randn(30, 4), torch.randn(30, 1))
        train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
        tests = DataLoader(test_set, batch_size=8)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in train_loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                print(epoch, sum(nn.functional.mse_loss(model(x), y).item() for x, y in tests))
        """,
        after=None,
    ),
]


@rule("AD206")
def shuffle_evaluation_alike(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Let all ranks evaluate in the same random order.

    The ranks' random streams part once they draw noise or augment different samples. A loader that shuffles for an
    evaluation, or has a random sampler, would then give each rank another order, with `drop_last` other samples, and
    what follows from the result, such as stopping early, would differ by rank. A generator of its own keeps the order
    the same.
    """
    if not script.trains or script.distributed:
        return
    shuffling = [site for site in script.evaluation_loaders if _shuffles(site.node)]
    for site in (*shuffling, *script.evaluation_samplers):
        assert isinstance(site.node, ast.Call)
        alike, needed = generator(script, context, site.source, site.node)
        fix = Fix((*needed, *planned(site.source, SetArgument(site.node, "generator", alike))))
        yield Finding(site.source, site.node, "the ranks would evaluate in different orders", fix)


def _shuffles(call: ast.AST) -> bool:
    assert isinstance(call, ast.Call)
    shuffle = argument(call, "shuffle", 2)
    fixed = isinstance(shuffle, ast.Constant) and not shuffle.value
    return shuffle is not None and not fixed and argument(call, "generator") is None
