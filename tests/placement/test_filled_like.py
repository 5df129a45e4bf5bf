"""Tensors that are filled with one number, of the shape of others: they lie as those do."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import Replicate, Shard
from autodist.placement.propagate import propagate
from autodist.solve.sources import sources

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __init__(self):
        self.rows = [torch.arange(length) for length in range(3, 67)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True)


net = nn.Embedding(70, 4)
for x in DataLoader(Words(), batch_size=8, shuffle=True, collate_fn=collate):
    result = {filled}
    net(x).mean().backward()
    result
"""


@pytest.mark.parametrize(
    ("filled", "apart"),
    [
        ("torch.full(x.shape, 0.15)", True),
        ("torch.full(x.size(), 0.15)", True),
        ("torch.full(size=x.shape, fill_value=0.15)", True),
        ("torch.bernoulli(torch.full(x.shape, 0.15)).bool()", True),
        ("x.masked_fill(torch.full(x.shape, 0.15) > 0.1, 1)", True),
        ("torch.full((8, 4), 0.15)", False),
    ],
)
def test_what_is_filled_for_each_sample(filled: str, apart: bool) -> None:
    program = traced(SCRIPT.format(filled=filled))
    placements = propagate(program, sources(program, CATALOG).plan, catalog=CATALOG)
    assert placements.value(bound(program, "result")) == (Shard(0) if apart else Replicate())
