"""What is made of sets of names is in no order, either: each rank would go through it in another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

names = [f"SC4{i:02}1E0" for i in range(20)]
held = names[:4]
MADE
x = torch.tensor([[float(name[3:5])] for name in chosen])
loader = DataLoader(TensorDataset(x, 2 * x), batch_size=8, shuffle=True)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "ordered"),
    [
        ("chosen = list(set(names) - set(held))", "as_on_rank_zero(list(set(names) - set(held)))"),
        ("chosen = list(set(names) | set(held))", "as_on_rank_zero(list(set(names) | set(held)))"),
        ("chosen = list(set(names).difference(held))", "as_on_rank_zero(list(set(names).difference(held)))"),
        ("chosen = tuple(set(names) & {*held})", "as_on_rank_zero(tuple(set(names) & {*held}))"),
        ("chosen = [name for name in set(names) - set(held)]", "in as_on_rank_zero(list(set(names) - set(held)))"),
        ("chosen = sorted(set(names) - set(held))", None),
    ],
)
def test_ranks_go_through_it_alike(made: str, ordered: str | None, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT.replace("MADE", made))
    assert ordered in text if ordered is not None else "as_on_rank_zero(list" not in text
