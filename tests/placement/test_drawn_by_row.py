"""What is drawn for each row of weights lies as they do; what is drawn of all of them is of each rank's own."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import PerRank, Shard
from autodist.placement.propagate import propagate
from autodist.solve.sources import sources

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
for (x,) in loader:
    weights = net(x).softmax(-1)
    result = {drawn}
    net(x).mean().backward()
    result
"""


@pytest.mark.parametrize(
    ("drawn", "apart", "sizes"),
    [
        ("torch.multinomial(weights, 1)", True, (None, 1)),
        ("torch.multinomial(weights.detach(), num_samples=1)", True, (None, None)),
        ("weights.multinomial(2)", True, (None, 2)),
        ("torch.cat([x, torch.multinomial(weights, 1)], 1)", True, (None, None)),
        ("torch.multinomial(weights[:, 0], 4)", False, None),
    ],
)
def test_draws_for_rows(drawn: str, apart: bool, sizes: tuple[int | None, ...] | None) -> None:
    program = traced(SCRIPT.format(drawn=drawn))
    placements = propagate(program, sources(program, CATALOG).plan, catalog=CATALOG)
    value = bound(program, "result")
    lying = placements.value(value)
    assert lying == Shard(0) if apart else isinstance(lying, PerRank)
    assert not apart or placements.size(value) == sizes
