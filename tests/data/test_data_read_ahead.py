"""Data that a loader hands out as a whole ahead of training, of which steps pick their batches by hand: all ranks hold
them, and each takes its rows of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

TEXT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size={size}{shuffle})
{read}
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    order = torch.randperm(len(x))
    for i in range(0, len(x), 8):
        {picked}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model({x}), {y})
        loss.backward()
        optimizer.step()
"""
ONCE = {"size": "len(data)", "shuffle": "", "read": "x, y = next(iter(loader))"}
JOINED = {
    "size": "16",
    "shuffle": "",
    "read": "all = [batch for batch in loader]\nx, y = torch.cat([a for a, _ in all]), torch.cat([b for _, b in all])",
}
FEATURES = {
    "size": "16",
    "shuffle": ", shuffle=True",
    "read": """\
body = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
x, y = [], []
with torch.no_grad():
    for images, labels in loader:
        x.append(body(images))
        y.append(labels)
x, y = torch.cat(x), torch.cat(y)""",
}
PICKED = [
    ("rows = order[i : i + 8]", "x[rows]", "y[rows]", "rows = local_rows(order[i : i + 8], 8)"),
    ("pass", "x[i : i + 8]", "y[i : i + 8]", "model(local_rows(x[i : i + 8], 8)), local_rows(y[i : i + 8], 8)"),
    (
        "rows = torch.randint(len(x), (8,))",
        "x[rows]",
        "y[rows]",
        "rows = torch.randint(len(x), (8,))[dist.get_rank() :: dist.get_world_size()]",
    ),
]


@pytest.mark.parametrize("read", [ONCE, JOINED, FEATURES])
@pytest.mark.parametrize(("picked", "x", "y", "expected"), PICKED)
def test_are_whole_on_all_ranks(
    tmp_path: Path, read: dict[str, str], picked: str, x: str, y: str, expected: str
) -> None:
    """Each rank had its share of them, of which it picked as many rows as one process does of all."""
    after, _ = converted(tmp_path, TEXT.format(**read, picked=picked, x=x, y=y))
    assert expected in after
    assert "DistributedSampler" not in after and f"loader = DataLoader(data, batch_size={read['size']}" in after
    assert not read["shuffle"] or "generator=torch.Generator().manual_seed(torch.initial_seed())" in after


def test_are_shared_out_where_steps_learn_from_all_of_them(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, TEXT.format(**ONCE, picked="pass", x="x", y="y"))
    assert "sampler=DistributedSampler(data, shuffle=False)" in after


def test_are_walked_through_by_place(tmp_path: Path) -> None:
    """Grokking: an order of all samples, drawn anew once it is used up."""
    text = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
x, y = (each.to("cpu") for each in next(iter(DataLoader(data, batch_size=len(data)))))
size = min(512, len(x) // 2)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def learn(inputs, labels):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()


order, place = torch.randperm(len(x)), 0
for step in range(100):
    if place >= len(x):
        order, place = torch.randperm(len(x)), 0
    rows = order[place : place + size]
    place += size
    learn(x[rows], y[rows])
"""
    after, said = converted(tmp_path, text)
    assert "rows = local_rows(order[place : place + size], size)" in after
    assert "DistributedSampler" not in after and "AD902" not in said
