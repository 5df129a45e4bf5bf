"""Where samples lie after patterns of `einops`."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import Partial, PerRank, Placement, Shard
from autodist.placement.lattice import Placement as Lying
from autodist.placement.propagate import propagate

HEAD = """\
import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 6, 4)), batch_size=8)
for (x,) in loader:
"""
MEAN = Partial("mean", "rows")


def lies(line: str) -> Lying | None:
    program = traced(f"{HEAD}    result = {line}\n")
    return propagate(program, lambda source: Shard(0), catalog=CATALOG).value(bound(program, "result"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rearrange(x, 'b n d -> b (n d)')", Shard(0)),
        ("rearrange(x, 'b n d -> n b d')", Shard(1)),
        ("rearrange(x, 'b n d -> 1 b n d')", Shard(1)),
        ("rearrange(rearrange(x, 'b n d -> n b d'), 'n b d -> b n d')", Shard(0)),
        ("rearrange(x, 'b n (h d) -> b h n d', h=2)", Shard(0)),
        ("rearrange(x, 'b ... -> b (...)')", Shard(0)),
        ("rearrange(x, '... d -> d ...')", Shard(1)),
        ("rearrange(x, 'b n d -> (b n) d')", Shard(0)),
        ("rearrange(rearrange(x, 'b n d -> (b n) d') * 2, '(b n) d -> b n d', n=6)", Shard(0)),
        ("repeat(x, 'b n d -> b r n d', r=3)", Shard(0)),
        ("repeat(torch.ones(4), 'd -> b 2 d', b=len(x))", Shard(0)),
        ("reduce(x, 'b n d -> b d', 'mean')", Shard(0)),
        ("reduce(x, 'b n d -> n d', 'mean')", MEAN),
        ("reduce(x, 'b n d -> n', 'sum')", Partial("sum")),
        ("reduce(x, 'b n d -> d', reduction='max')", Partial("max")),
        ("reduce(x.mean(0), 'n d -> n', 'mean')", MEAN),
        ("reduce(x.amax(0), 'n d -> n', 'max')", Partial("max")),
        ("Rearrange('b n d -> n b d')(x)", Shard(1)),
        ("Reduce('b n d -> b n', 'max')(x)", Shard(0)),
    ],
)
def test_the_axis_of_the_samples_is_followed(line: str, expected: Placement) -> None:
    assert lies(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "rearrange(x, 'b n d -> (n b) d')",  # samples between each other
        "rearrange(x, '(p c) n d -> p c n d', c=2)",  # in pairs
        "rearrange(x, '(b c) n d -> b c n d', c=2)",
        "rearrange(rearrange(x, 'b n d -> (b n) d'), '(b n) d -> b n d', b=8)",  # of all ranks' samples
        "reduce(x.mean(0), 'n d -> n', 'max')",  # of a part of each number
        "reduce(x.sum(0), 'n d -> n', 'min')",
        "reduce(x, 'b n d -> n d', 'prod')",
        "rearrange(x, 'b n d -> ... b')",
    ],
)
def test_what_lays_samples_into_each_other_is_told(line: str) -> None:
    assert isinstance(lies(line), PerRank)
