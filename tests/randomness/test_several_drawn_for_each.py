"""Several numbers drawn at once for each sample of a batch that a script makes: the batch is what ranks share."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

TEXT = """\
import random

import torch
from torch import nn


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.u, self.v = nn.Embedding(30, 8), nn.Embedding(30, 8)

    def forward(self, centre, context, others):
        centre = self.u(centre)
        near = nn.functional.logsigmoid((centre * self.v(context)).sum(1))
        far = nn.functional.logsigmoid(-torch.bmm(self.v(others), centre.unsqueeze(2)).squeeze(2)).sum(1)
        return -(near + far).mean()


pairs = [(i % 30, i * 7 % 30) for i in range(640)]
frequencies = torch.rand(30)
model = SkipGram()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
random.shuffle(pairs)
for i in range(0, len(pairs), 32):
    batch = pairs[i : i + 32]
    centre = torch.tensor([a for a, _ in batch])
    context = torch.tensor([b for _, b in batch])
    others = torch.multinomial(frequencies, len(batch) * 5, replacement=True).view(len(batch), 5)
    loss = model(centre, context, others)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_are_shared_out_with_the_batch(tmp_path: Path) -> None:
    """A rank's share of them met the whole batch: a crash."""
    after, _ = converted(tmp_path, TEXT)
    assert "batch = local_rows(pairs[i : i + 32])" in after
    count = "len(batch) * dist.get_world_size()"
    drawn = "torch.multinomial(frequencies, len(batch) * 5 * dist.get_world_size(), replacement=True)"
    assert f"others = {drawn}.view({count}, 5)[dist.get_rank() :: dist.get_world_size()]" in after
