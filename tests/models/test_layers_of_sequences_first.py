"""Layers that work along the last axis, in models whose samples lie along the second."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

TEXT = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.norm = nn.LayerNorm({shape})
        self.attention = nn.MultiheadAttention(8, 2)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 9)

    def forward(self, x):
        x = self.norm(self.embedding(x))
        a, _ = self.attention(x, x, x, need_weights=False)
        return self.head(x + self.mlp(x + a))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randint(0, 9, (64, 10))
for step in range(10):
    x = data.t()
    out = model(x[:-1])
    loss = nn.functional.cross_entropy(out[-1], x[-1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_keep_samples_apart(tmp_path: Path) -> None:
    after, said = converted(tmp_path, TEXT.format(shape="8"))
    assert "AD902" not in said and "model = DDP(Net()" in after


@pytest.mark.parametrize("shape", ["(64, 8)", "data.shape"])
def test_unless_they_work_along_several(tmp_path: Path, shape: str) -> None:
    _, said = converted(tmp_path, TEXT.format(shape=shape))
    assert "AD902" in said
