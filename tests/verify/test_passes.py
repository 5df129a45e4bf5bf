"""Ranks may take another number of backward passes to a step than the original: what the step does must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify import verify
from autodist.verify.launch import Zygote

PIECES = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        for part, goal in zip(x.split(3), y.split(3)):
            F.mse_loss(model(part), goal, reduction="sum").backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def test_pieces_of_a_rank_are_fewer(tmp_path: Path, zygote: Zygote | None) -> None:
    """Two of its 4 rows, where there are three of the batch of 8."""
    assert differences(tmp_path, zygote, PIECES) is None


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("x.split(3), ", "x[:3].split(3), ", {"backward-count", "gradient"}),
        ("y.split(3)", "y.roll(1, 0).split(3)", {"backward-count", "gradient"}),
        ("lr=0.01", "lr=0.01, weight_decay=0.1", {"optimizer-settings", "parameters"}),
    ],
    ids=["a piece left out", "goals of other rows", "a step that does something else"],
)
def test_what_they_come_to_is_compared(
    tmp_path: Path, zygote: Zygote | None, old: str, new: str, kinds: set[str]
) -> None:
    (tmp_path / "before.py").write_text(PIECES)
    right, _ = converted(tmp_path, PIECES)
    assert old in right
    (tmp_path / "after.py").write_text(right.replace(old, new))
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert not verdict.equal
    found = {finding.kind for finding in verdict.worlds[0].findings}
    assert found >= kinds and ("backward-count" in kinds) == ("backward-count" in found)
