"""Data that are drawn anew in each epoch, of which all ranks must have the same."""

from __future__ import annotations

import re
from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

torch.manual_seed(0)
inputs, targets = torch.randn(96, 5), torch.randn(96, 1)


class Noisy(Dataset):
    def __init__(self):
        self.draw()

    def draw(self):
        self.noise = torch.randn(96, 5)

    def __len__(self):
        return 96

    def __getitem__(self, i):
        return inputs[i] + self.noise[i], targets[i]


def make_data(n):
    x = torch.randn(n, 5)
    return TensorDataset(x, x.sum(1, keepdim=True))


noisy = Noisy()
plain = TensorDataset(inputs, targets)
model = nn.Sequential(nn.Linear(5, 8), {drops}, nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    {made}
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
MAKE = "loader = DataLoader({}, batch_size=8, shuffle=True)"
ANEW = [
    MAKE.format("make_data(64)"),
    f"noisy.draw()\n    {MAKE.format('noisy')}",
    f"part = Subset(plain, torch.randperm(96)[:64])\n    {MAKE.format('part')}",
]


@pytest.mark.parametrize("made", ANEW)
def test_ranks_draw_the_same_data(tmp_path: Path, made: str) -> None:
    """Seeded by rank for their masks of dropout, they would draw other data, and take shares of these."""
    after, said = conftest.converted(tmp_path, SCRIPT.format(made=made, drops="nn.Dropout(0.1)"))
    assert "torch.initial_seed() + 1 + dist.get_rank()" in after and "masks of dropout" not in said
    assert len(re.findall(r"drawn_by_rank_zero\(torch.rand", after)) == 1
    plain, quiet = conftest.converted(tmp_path, SCRIPT.format(made=made, drops="nn.ReLU()"))
    assert "drawn_by_rank_zero" not in plain and "masks of dropout" not in quiet


@pytest.mark.parametrize(
    "made",
    [
        f"rows = torch.stack([torch.randn(5) for _ in range(64)])\n    {MAKE.format('TensorDataset(rows, rows)')}",
        MAKE.format("Subset(plain, torch.randperm(96)[:64])"),
    ],
)
def test_data_that_rank_zero_does_not_draw(tmp_path: Path, made: str) -> None:
    """One row after the other, or inside a call that is written anew: the ranks go on drawing alike."""
    after, said = conftest.converted(tmp_path, SCRIPT.format(made=made, drops="nn.Dropout(0.1)"))
    assert "torch.initial_seed() + 1 + dist.get_rank()" not in after
    assert "masks of dropout and noise are the same on all ranks" in said


def test_data_that_stay(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, SCRIPT.format(made=MAKE.format("noisy"), drops="nn.Dropout(0.1)"))
    assert "torch.initial_seed() + 1 + dist.get_rank()" in after and "masks of dropout" not in said


@pytest.mark.parametrize(
    ("decision", "common"),
    [
        ("if torch.rand(1).item() < 0.3:\n            continue", True),
        ("again = torch.rand(1) < 0.5\n        if again:\n            print(model(x).mean().item())", True),
        ("for _ in range(torch.randint(1, 4, (1,)).item()):\n            x = x - 0.1 * model(x)", True),
        ("if torch.rand(1) < 0.5:\n            x = x.flip(1)", True),
        ("x = x + 0.1 * torch.randn_like(x)", False),
        ("first = model(x + torch.randn_like(x)).mean()\n        if first.item() > 9:\n            continue", False),
        ("if epoch > 1:\n            continue", False),
    ],
)
def test_ranks_draw_the_same_decisions(tmp_path: Path, decision: str, common: bool) -> None:
    """Seeded by rank for their masks of dropout, some would wait for what others do not come to: rank 0 decides."""
    script = SCRIPT.format(drops="nn.Dropout(0.2)", made=MAKE.format("plain"))
    script = script.replace("    for x, y in loader:\n", f"    for x, y in loader:\n        {decision}\n")
    text, said = conftest.converted(tmp_path, script)
    assert "initial_seed() + 1 + dist.get_rank()" in text and "masks of dropout" not in said
    assert ("drawn_by_rank_zero(torch.rand" in text) is common
