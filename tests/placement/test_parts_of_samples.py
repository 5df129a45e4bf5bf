"""Where an axis of samples is joined with another, and parted again: whole samples come back, or pieces of several."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import PerRank, Placement, Shard
from autodist.placement.layout import GROUPED
from autodist.placement.propagate import propagate

HEAD = """\
import torch
from torch import nn
from einops import rearrange
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 6, 3)), batch_size=8)
for (x,) in loader:
    b, n, d = x.shape
"""


def lies(line: str) -> Placement | None:
    program = traced(f"{HEAD}    result = {line}\n")
    return propagate(program, lambda source: Shard(0), catalog=CATALOG).value(bound(program, "result"))


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("x.flatten(0, 1)", 6),
        ("x.flatten(0, 1).tanh().flatten()", 18),
        ("x.reshape(-1, 3)", 6),
        ("x.flatten(0, 1).view(-1, 6, 3)", 1),
        ("x.flatten(0, 1).view(-1, 2, 3)", 3),
        ("x.flatten(0, 1).unflatten(0, (-1, 6))", 1),
        ("x.flatten(0, 1).unflatten(0, (-1, 3))", 2),
        ("nn.Unflatten(0, (-1, 2))(x.flatten(0, 1))", 3),
        ("x.reshape(-1, 3).reshape(-1, 3, 3)", 2),
        ("x.reshape(b * n, d)", 6),
        ("x.reshape(b * n, d).reshape(b, n, d)", 1),
        ("x.reshape(b * n, d).reshape(-1, n, d)", 1),
        ("x.repeat_interleave(2, 0)", 2),
        ("x.repeat_interleave(2, 0).view(-1, 2, 6, 3)", 1),
        ("torch.cat([row for row in x]).view(-1, 6, 3)", 1),
        ("rearrange(x, 'b n d -> (b n) d')", 6),
        ("rearrange(rearrange(x, 'b n d -> (b n) d'), '(b n) d -> b n d', n=6)", 1),
        ("rearrange(rearrange(x, 'b n d -> (b n) d'), '(b n) d -> b n d', n=2)", 3),
    ],
)
def test_parts_are_counted(line: str, parts: int) -> None:
    found = lies(line)
    assert isinstance(found, Shard) and (found.axis, found.parts) == (0, parts)


@pytest.mark.parametrize(
    "line",
    [
        "x.flatten(0, 1).view(-1, 12, 3)",
        "x.flatten(0, 1).view(-1, 4, 3)",
        "x.flatten(0, 1).tanh().flatten().view(-1, 12, 3)",
        "x.flatten(0, 1).unflatten(0, (-1, 12))",
        "x.mean(1).unflatten(0, (-1, 2))",
        "x.mean(1).unflatten(0, (-1, int(input())))",
        "nn.Unflatten(0, (-1, 4))(x.flatten(0, 1))",
        "x.reshape(-1, 3).reshape(-1, 4, 3)",
        "x.repeat_interleave(2, 0).view(-1, 4, 6, 3)",
        "torch.cat([row for row in x]).view(-1, 12, 3)",
        "rearrange(rearrange(x, 'b n d -> (b n) d'), '(b n) d -> b n d', n=12)",
        "rearrange(x.flatten(0, 1), '(b n) d -> b n d', n=4)",
        "x.reshape(b * n, d).tanh().reshape(-1, 2 * n, d)",
    ],
)
def test_several_samples_in_a_row_are_told(line: str) -> None:
    found = lies(line)
    assert isinstance(found, PerRank) and found.reason == GROUPED


@pytest.mark.parametrize("line", ["x.unflatten(2, (1, 3))", "nn.Unflatten(1, (2, 3))(x)", "x.unflatten(1, (2, -1))"])
def test_another_axis_may_be_parted(line: str) -> None:
    found = lies(line)
    assert isinstance(found, Shard) and (found.axis, found.parts) == (0, 1)
