"""No two epochs may train in one order where those of the original have an order each."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote
from verify.conftest import edit

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def score(loader, wanted):
    rows, count = [], 0
    for x, _ in loader:
        rows.append(x)
        count += x.size(0)
        if count >= wanted:
            break
    return torch.cat(rows)[:wanted].mean()


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 2:
        print(f"score {score(loader, 16):.4f}")
"""
PASS = "    loader.sampler.set_epoch({})\n    for x, y"
SCORE = "    loader.sampler.set_epoch({})\n    for x, _"
NEXT = "loader.sampler.epoch + 1"


@pytest.mark.parametrize(
    ("old", "new", "repeated"),
    [
        ("", "", None),
        (SCORE.format(NEXT), SCORE.format("epoch"), "repeats the first"),
        (SCORE.format(NEXT), SCORE.format("99"), "repeats that of pass 3 in pass 6"),
        (PASS.format(NEXT), PASS.format("(epoch + 1) % 4"), "repeats"),
    ],
)
def test_passes_between_those_of_training(
    tmp_path: Path, zygote: Zygote | None, old: str, new: str, repeated: str | None
) -> None:
    """Each pass of the loader had another scheme, so that the sampler came to the same epoch twice."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SCRIPT)
    after.write_text(converted(tmp_path, SCRIPT)[0])
    edit(after, old, new)
    found = verify(before, after, [2], device="cpu", workdir=tmp_path, timeout=100, zygote=zygote)
    said = {finding.kind: finding.message for finding in found.worlds[0].findings}
    assert said.keys() == ({"order-repeated"} if repeated else set()), said
    assert repeated is None or repeated in said["order-repeated"]
