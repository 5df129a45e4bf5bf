"""Functions that draw a batch of as many samples as they are told: whole batches, of which each rank takes its share,
for training and for evaluation alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

TEXT = """\
import torch
from torch import nn

batch, batch_size = 8, 8
data = torch.randint(0, 9, (500,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.head = nn.Linear(8, 9)

    def forward(self, x, targets):
        logits = self.head(self.embedding(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(split, batch_size=8):
    places = torch.randint(len(data) - 10, (batch_size,))
    x = torch.stack([data[i : i + 10] for i in places])
    y = torch.stack([data[i + 1 : i + 11] for i in places])
    return x, y


@torch.no_grad()
def evaluate(model, batch_size, rounds=5):
    model.eval()
    losses = torch.zeros(rounds)
    for k in range(rounds):
        x, y = get_batch("val", batch_size)
        losses[k] = model(x, y).item()
    model.train()
    return losses.mean()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = get_batch("train", batch)
    loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(evaluate(model, batch))
"""


@pytest.mark.parametrize("told", [", batch)\n    loss", ", batch_size)\n    loss", ")\n    loss"])
def test_are_whole_where_they_are_told(tmp_path: Path, told: str) -> None:
    """Half a batch of half a batch was evaluated, and what training draws after that was other samples."""
    after, _ = converted(tmp_path, TEXT.replace(", batch)\n    loss", told))
    assert "(batch_size,))[dist.get_rank() :: dist.get_world_size()]" in after
    assert 'get_batch("val", batch_size)' in after and "evaluate(model, batch)" in after
    assert f'get_batch("train"{told}' in after


def test_are_a_share_below_that(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, TEXT.replace("return x, y", "return x.view(batch_size, -1), y"))
    assert "x.view(batch_size // dist.get_world_size(), -1), y" in after
    assert 'get_batch("val", batch_size)' in after and 'get_batch("train", batch)' in after
