"""Samples of a batch that a step changes by their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.rand(64, 4), torch.rand(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {change}
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "change", ["x[0] = 0", "x[:2, 1:] *= 0.5", "x[-1] = torch.zeros(4)", "for i in range(3):\n        x[i] = 0"]
)
def test_by_place(tmp_path: Path, change: str) -> None:
    """Each rank would change its own first one."""
    _, said = converted(tmp_path, SCRIPT.format(change=change))
    assert "AD602 x[" in said and ("replaced by what is not theirs" in said or "takes samples by their places" in said)


@pytest.mark.parametrize("change", ["x[:, 0] = 0", "x[y[:, 0] > 0.5] = 0", "x[...] = 0", "x[: len(x) // 4] = 0"])
def test_of_each_sample(tmp_path: Path, change: str) -> None:
    """What is done to each of them, or to a share, is alike on all ranks."""
    _, said = converted(tmp_path, SCRIPT.format(change=change))
    assert "these places" not in said


def test_of_a_batch_that_is_drawn(tmp_path: Path) -> None:
    """A rank has fewer samples than the script counts on."""
    drawn = SCRIPT.replace("for x, y in loader:", "for _ in range(9):\n    x, y = torch.rand(8, 4), torch.rand(8, 1)")
    _, said = converted(tmp_path, drawn.format(change="x[6] = 0"))
    assert "AD602 x[6]: samples are replaced by what is not theirs" in said
