"""What steps keep for later ones: ranks go on alike only where it is that of all samples."""

from __future__ import annotations

import pytest
from programs import CATALOG, traced

from autodist.solve.alone import Alone
from autodist.solve.cuts import solved
from autodist.solve.sources import sources

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{start}
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy({loss}, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        {step}
"""


def wanted(start: str, loss: str, step: str) -> list[str]:
    """What is made global so that steps go on alike."""
    program = traced(SCRIPT.format(start=start, loss=loss, step=step.replace("\n", "\n        ")))
    found = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    return [each.source.code(each.node) for each in found if each.is_met]


@pytest.mark.parametrize(
    ("start", "loss", "step", "global_"),
    [
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "centre = 0.9 * centre + 0.1 * out.detach().mean(0)",
            ["0.1 * out.detach().mean(0)"],
        ),
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "with torch.no_grad():\n    centre = centre * 0.9 + out.mean(0) * 0.1",
            ["out.mean(0) * 0.1"],
        ),
        (
            "centre = torch.zeros(3)",
            "out - centre",
            "centre.mul_(0.9).add_(0.1 * out.detach().mean(0))",
            ["0.1 * out.detach().mean(0)"],
        ),
        (
            "sizes = torch.zeros(3)",
            "out / (1 + sizes)",
            "sizes = 0.9 * sizes + 0.1 * F.one_hot(y, 3).float().sum(0)",
            ["F.one_hot(y, 3).float().sum(0)"],
        ),
        (
            "memory = torch.zeros(3, 3)",
            "out + memory[y]",
            "memory[y] = out.detach()",
            ["y", "out.detach()"],
        ),
        (
            "weight = 1.0",
            "out * weight",
            "weight = min(weight + 0.1 * loss.item(), 2.0)",
            ["0.1 * loss.item()"],
        ),
    ],
)
def test_states_are_made_global_where_they_are_kept(start: str, loss: str, step: str, global_: list[str]) -> None:
    assert wanted(start, loss, step) == global_


@pytest.mark.parametrize(
    ("start", "loss", "step"),
    [
        ("total = 0.0", "out", "total += loss.item()"),
        ("rate = 1.0", "out * rate", "rate = rate * 0.99"),
        ("hidden = torch.zeros(8, 3)", "out + hidden", "hidden = 0.9 * hidden + 0.1 * out.detach()"),
        ("seen = 0", "out", "seen += len(x)"),
    ],
    ids=["a sum that no loss is computed from", "the same on all ranks", "rows of each rank's own", "a counter"],
)
def test_others_are_left_alone(start: str, loss: str, step: str) -> None:
    assert wanted(start, loss, step) == []
