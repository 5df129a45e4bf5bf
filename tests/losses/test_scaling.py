"""What is scaled by how many samples a batch has, on the way to a loss that is not linear."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        {forward}


def scaled(rows, x):
    return rows / x.shape[0]


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,))), batch_size=16)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
STEP = "loss = F.cross_entropy(model(x), y)"


def converted(folder: Path, forward: str = "return self.head(x)", step: str = STEP, more: str = "") -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(forward=forward, step=indent(step, " " * 8)) + more)


@pytest.mark.parametrize(
    ("forward", "count"),
    [
        ("return self.head(x) / x.size(0)", "x.size(0)"),
        ("return self.head(x) * len(x)", "len(x)"),
        ("return self.head(x).div(x.size(0))", "x.size(0)"),
        ("return scaled(self.head(x), x)", "x.shape[0]"),
        ("return self.head(x / x.size(0))", "x.size(0)"),
    ],
)
def test_in_a_forward_pass(tmp_path: Path, forward: str, count: str) -> None:
    after, said = converted(tmp_path, forward)
    assert f"{count} * dist.get_world_size()" in after and "AD602" not in said


def test_evaluation_has_all_samples(tmp_path: Path) -> None:
    more = (
        "    with torch.no_grad():\n        for x, y in test_loader:\n            print(F.cross_entropy(model(x), y))\n"
    )
    after, said = converted(tmp_path, "return self.head(x) / x.size(0)", more=more)
    assert "x.size(0) * (dist.get_world_size() if torch.is_grad_enabled() else 1)" in after and "AD602" not in said


def test_evaluation_that_cannot_be_told_apart_is_named(tmp_path: Path) -> None:
    more = "    for x, y in test_loader:\n        print(F.cross_entropy(model(x), y))\n"
    _, said = converted(tmp_path, "return self.head(x) / x.size(0)", more=more)
    assert "AD602 self.head(x) / x.size(0): it divides by a number that is each rank's own" in said


@pytest.mark.parametrize(
    "step",
    [
        "out = model(x) / len(x)\nloss = F.cross_entropy(out, y)",
        "out = model(x) / len(x)\nloss = (out**2).sum()",
        "scale = 1 / len(x)\nloss = F.cross_entropy(model(x) * scale, y)",
    ],
)
def test_beside_the_model(tmp_path: Path, step: str) -> None:
    after, said = converted(tmp_path, step=step)
    assert "len(x) * dist.get_world_size()" in after and "RowsOfAllRanks" not in after and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = (F.cross_entropy(model(x), y, reduction='none') / len(x)).sum()",
        "loss = F.cross_entropy(model(x), y, reduction='sum') / len(x)",
        "loss = F.cross_entropy(model(x), y) * len(x) / len(x)",
    ],
)
def test_means_stay_as_they_are(tmp_path: Path, step: str) -> None:
    after, said = converted(tmp_path, step=step)
    assert "get_world_size() " not in after.split("loss =")[1] and "AD602" not in said


@pytest.mark.parametrize("bound", ["n = x.size(0)", "n, d = x.shape", "n, d = x.size()", "n = len(x)\n        n = n"])
def test_by_a_name(tmp_path: Path, bound: str) -> None:
    after, said = converted(tmp_path, f"{bound}\n        return self.head(x) / n")
    assert "/ (n * dist.get_world_size())" in after and "AD602" not in said
