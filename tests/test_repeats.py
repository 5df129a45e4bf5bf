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
