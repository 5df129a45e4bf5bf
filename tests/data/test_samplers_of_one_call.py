"""Samplers that one call makes for several loaders."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

OF_ONE_CALL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset


def part(n):
    return SubsetRandomSampler(range(n))


data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, sampler=part(32))
other = DataLoader(data, batch_size=8, sampler=part(32))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x, y), (u, v) in zip(loader, other):
        optimizer.zero_grad()
        (nn.functional.mse_loss(model(x), y) + nn.functional.mse_loss(model(u), v)).backward()
        optimizer.step()
"""


def test_samplers_that_one_call_makes_for_loaders_side_by_side(tmp_path: Path) -> None:
    """Two loaders asked for two seeds of the one call, a conflict: each sampler has the next."""
    assert (
        "generator=torch.Generator().manual_seed(torch.initial_seed() + next(passes))"
        in converted(tmp_path, OF_ONE_CALL)[0]
    )
