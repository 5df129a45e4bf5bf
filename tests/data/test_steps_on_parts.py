"""Steps that learn from some of the rows of a batch that a loader has handed out: there are other parts of a rank's
share than of the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

TEXT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 32
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=batch_size, shuffle=True)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def learn(x, y):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


for epoch in range(4):
    for x, y in loader:
"""
PARTS = [
    "        for i in range(0, len(x), 8):\n            learn(x[i : i + 8], y[i : i + 8])\n",
    "        order = torch.randperm(len(x))\n        for i in range(0, len(x), 8):\n"
    "            rows = order[i : i + 8]\n            learn(x[rows], y[rows])\n",
    "        for a, b in zip(x.split(8), y.split(8)):\n            learn(a, b)\n",
    "        for a, b in zip(x, y):\n            learn(a[None], b[None])\n",
    "        learn(x, y)\nx, y = next(iter(loader))\nfor i in range(0, 32, 8):\n    learn(x[i:], y[i:])\n",
]


@pytest.mark.parametrize("loop", PARTS)
def test_are_refused(tmp_path: Path, loop: str) -> None:
    _, said = converted(tmp_path, TEXT + loop)
    assert "AD902 each step learns from" in said


ADDED_UP = """\
        optimizer.zero_grad()
        for i in range(0, {stop}, 8):
            (nn.functional.cross_entropy(model(x[i : i + 8]), y[i : i + 8]) / 4).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("stop", ["32", "batch_size"])
def test_rows_that_a_rank_does_not_have(tmp_path: Path, stop: str) -> None:
    """The loss of no rows is not a number."""
    _, said = converted(tmp_path, TEXT + ADDED_UP.format(stop=stop))
    assert f"AD902 goes on to row {stop} of a batch" in said


@pytest.mark.parametrize(
    "loop",
    [
        ADDED_UP.format(stop="len(x)"),
        "        for k in range(2):\n            print(x[:2].mean())\n            learn(x, y)\n",
        "        half = len(x) // 2\n        learn(x[:half], y[:half])\n",
        "        for a, b in zip(x.chunk(4), y.chunk(4)):\n            learn(a, b)\n",
        "        for t in range(0, 8, 4):\n            learn(x.roll(t, 1), y)\n",
    ],
)
def test_what_goes_by_the_rows_that_there_are(tmp_path: Path, loop: str) -> None:
    after, said = converted(tmp_path, TEXT + loop)
    assert "AD902" not in said and "DDP(nn.Linear(8, 4)" in after


def test_replicas_are_called_past_the_wrapper(tmp_path: Path) -> None:
    """As the Annotated Transformer once did it, on the devices of one process."""
    loop = "        nn.parallel.parallel_apply(nn.parallel.replicate(model, [0, 1]), [x, x])\n        learn(x, y)\n"
    _, said = converted(tmp_path, TEXT + loop)
    assert "computes on several devices of this process" in said
