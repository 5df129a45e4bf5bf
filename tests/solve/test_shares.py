"""Where ranks take their shares of what no loader hands out."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest
from programs import CATALOG, traced

from autodist.placement.propagate import propagate
from autodist.solve.shares import shares
from autodist.solve.sources import sources
from autodist.verify.launch import Zygote

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(12, 5, 4), torch.randn(12, 5, 8)
n = len(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.flat = nn.GRU(4, 8, batch_first=True), nn.Linear(4, 8)

    def forward(self, x, h=None):
        return self.rnn(x, h)[0]


def turned(x, y):
    for i in range(0, len(x), 4):
        yield x[i : i + 4], y[i : i + 4]


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
STEP = """
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def found(text: str) -> list[tuple[str, str]]:
    """Where ranks take their shares, and of what kind these are."""
    program = traced(text)
    given = sources(program, CATALOG)
    taken = shares(program, given, propagate(program, given.plan), CATALOG)
    return [(each.kind, each.source.code(each.node)) for each in taken]


CASES = {
    "the arguments of a call": ("loss = F.mse_loss(net(x), y)", {("rows", "x"), ("rows", "y")}),
    "what is written behind what counts it": (
        "loss = (net(x) - y).pow(2).sum() / n",
        {("rows", "x"), ("rows", "y")},
    ),
    "states, of as many samples": (
        "loss = F.mse_loss(net(x, torch.zeros(1, n, 8)), y)",
        {("rows", "x"), ("rows", "y"), ("count", "n")},
    ),
    "what a step makes of whole data": (
        "out = net(x)\n    loss = F.mse_loss(out * y.abs().sqrt(), y)",
        {("rows", "x"), ("rows", "y")},
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_whole_data(step: str, expected: set[tuple[str, str]]) -> None:
    assert set(found(f"{HEAD}for epoch in range(4):\n    {step}{STEP}")) == expected


def test_batches_of_a_generator() -> None:
    """Where a step gets them: what makes them is the same on all ranks."""
    text = f"{HEAD}for a, b in turned(x, y):\n    loss = F.mse_loss(net(a), b){STEP}"
    assert found(text) == [("stream", "turned(x, y)")]


@pytest.mark.parametrize("rows", [12, 11])
@pytest.mark.parametrize(
    "step",
    [
        *(step for step, _ in CASES.values()),
        "loss = (net(x) - y).pow(2).sum() / len(x)",
        "loss = sum(F.mse_loss(net(x[i : i + 1])[0], y[i]) for i in range(len(x))) / len(x)",
    ],
)
def test_trains_as_one_process(tmp_path: Path, zygote: Zygote | None, step: str, rows: int) -> None:
    """Also where ranks have a row more than others."""
    text = f"{HEAD}for epoch in range(4):\n    {step}{STEP}    print(loss.item())\n".replace(
        "randn(12,", f"randn({rows},"
    )
    _, said = conftest.converted(tmp_path, text)
    assert "AD602" not in said and "AD902" not in said, said
    if rows % 2 == 0 or "range(len(x))" not in step:
        assert conftest.differences(tmp_path, zygote, text) is None


LAST = "for i in range(len(x)):\n        loss = F.mse_loss(net(x[i : i + 1])[0], y[i])"
ROWS = "for a, b in turned(x, y):\n    "


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (f"for epoch in range(4):\n    {LAST}", True),
        (f"{ROWS}for row, target in zip(net(a), b):\n        loss = F.mse_loss(row, target)", True),
        (f"{ROWS}for k in range(2):\n        loss = F.mse_loss(net(a), b)", False),
    ],
)
def test_the_loss_of_the_last_sample(tmp_path: Path, step: str, told: bool) -> None:
    """Each rank has another last sample: this was silent, and trained on N of them."""
    _, said = conftest.converted(tmp_path, f"{HEAD}{step}{STEP}")
    assert ("AD602" in said or "AD902" in said) is told, said


@pytest.mark.parametrize(
    ("weights", "told"),
    [("[0.1 * k for k in range(n)]", True), ("list(range(n))", True), ("[1.0] * n", False)],
)
def test_weights_by_the_number_of_a_sample(tmp_path: Path, weights: str, told: bool) -> None:
    """A rank counts its own samples, and would give each the weight of another: this was silent for lists that are
    computed."""
    step = "for i in range(len(out)):\n        loss = loss + weights[i] * F.mse_loss(out[i], y[i])"
    text = f"{HEAD}weights = {weights}\nfor epoch in range(4):\n    out, loss = net(x), 0\n    {step}{STEP}"
    _, said = conftest.converted(tmp_path, text)
    assert ("AD602" in said or "AD902" in said) is told, said
