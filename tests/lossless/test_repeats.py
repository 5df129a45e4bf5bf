"""Of assertions that say the same, the first one is made, if it comes before the others wherever they are reached."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

size = 8
data, other = TensorDataset(torch.randn(64, 4)), TensorDataset(torch.randn(32, 4))
{loaders}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,), (y,) in zip(one, two):
    loss = model(x).pow(2).mean() + model(y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ONE, TWO = "one = DataLoader(data, size, shuffle=True)", "two = DataLoader(other, size, shuffle=True)"


@pytest.mark.parametrize(
    ("loaders", "count"),
    [
        (f"{ONE}\n{TWO}", 1),
        (f"{ONE}\nif True:\n    {TWO}", 1),
        (f"{ONE}\nsize = 16\n{TWO}", 2),
        (f"if len(data) > 1:\n    {ONE}\nelse:\n    one = None\n{TWO}", 2),
    ],
)
def test_assertions(tmp_path: Path, loaders: str, count: int) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.format(loaders=loaders))
    assert after.count("assert size % dist.get_world_size() == 0") == count, after


@pytest.mark.parametrize(
    ("between", "count"),
    [("", 1), ("adjust(args)", 2), ("args.update(size=12)", 2), ("print(args.size)", 1), ("args.size = 12", 2)],
)
def test_what_holds_the_size_may_be_changed(tmp_path: Path, between: str, count: int) -> None:
    """`adjust(args)` sets another size, after which the first assertion says nothing."""
    head = "import settings\n\nargs, adjust = settings.args, settings.adjust\n"
    one, two = (each.replace("size,", "args.size,") for each in (ONE, TWO))
    after, _ = conftest.converted(tmp_path, head + SCRIPT.format(loaders=f"{one}\n{between}\n{two}"))
    assert after.count("assert args.size % dist.get_world_size() == 0") == count, after


def test_a_global_name_that_a_function_sets(tmp_path: Path) -> None:
    sets = "def larger():\n    global size\n    size = 12\n\n\n"
    after, _ = conftest.converted(tmp_path, SCRIPT.format(loaders=f"{sets}{ONE}\nlarger()\n{TWO}"))
    assert after.count("assert size % dist.get_world_size() == 0") == 2, after
