"""Views whose sizes are those of a tensor, some of them, beside others."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.placement import PerRank, Placement, Replicate, Shard
from autodist.placement.call import OTHER_SIZE as ANY
from autodist.placement.propagate import propagate

HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 5, 8)), batch_size=8)
table = torch.randn(5, 4)
side = int(input())
for (q,) in loader:
    leading = q.shape[:-1]
    turned = q.transpose(0, 1)
"""


def lies(line: str) -> tuple[Placement | None, object]:
    program = traced(f"{HEAD}    result = {line}\n")
    found, value = propagate(program, lambda source: Shard(0), catalog=CATALOG), bound(program, "result")
    return found.value(value), found.size(value)


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("q.reshape(q.shape[:-1] + (-1, 2))", (None, 5, None, 2)),
        ("q.reshape(*q.shape[:-1], -1, 2)", (None, 5, None, 2)),
        ("q.reshape((*leading, 4, 2))", (None, 5, 4, 2)),
        ("q.view(*q.size()[:2], 4, 2)", (None, 5, 4, 2)),
        ("q.view(q.size()[:-1] + (4, 2))", (None, 5, 4, 2)),
        ("q.view(q.shape)", (None, 5, 8)),
        ("q.view(q.shape[0], *q.shape[1:], 1)", (None, 5, 8, 1)),
        ("q.flatten(0, 1).view(q.shape)", (None, 5, 8)),
        ("q.flatten(0, 1).view(*leading, 8)", (None, 5, 8)),
        ("q.sum((1, 2)).reshape(len(q), *((1,) * (q.ndim - 1)))", (None, 1, 1)),
        ("q.sum((1, 2)).view(len(q), *(1,) * (len(q.shape) - 1))", (None, 1, 1)),
        ("q.sum((1, 2)).view(-1, *[1] * (q.dim() - 1))", (None, 1, 1)),
        ("q.sum((1, 2)).view([-1] + [1] * (q.dim() - 1))", (None, 1, 1)),
        ("q.sum((1, 2)).view((len(q),) + (1,) * (q.dim() - 1))", (None, 1, 1)),
        ("q.view(len(q), *(1, 5) * (q.ndim - 2), -1)", (None, 1, 5, None)),
        ("q.sum((1, 2)).view(len(q), *(1,) * int(input()))", None),
        ("q.reshape(len(q), side, side, 2, 2, 1).reshape(len(q), side * 2, side * 2)", (None, ANY, ANY)),
        (
            "q.view(len(q), 5, 2, 2, 2, 1).permute(0, 3, 1, 4, 2, 5).reshape(len(q), 2, side * 2, -1)",
            (None, 2, ANY, None),
        ),
        ("q.view(len(q), 5, 1, 2, 1, 2, 2).mean((1, 3, 5)).reshape(len(q), side * 2)", (None, ANY)),
    ],
)
def test_samples_stay_first(line: str, sizes: tuple[int | None, ...] | None) -> None:
    assert lies(line) == (Shard(0), sizes)


def test_samples_stay_where_they_are() -> None:
    assert lies("q.sum((1, 2)).view(*(1,) * (q.ndim - 1), -1)") == (Shard(2), (1, 1, None))
    assert lies("turned.reshape(*turned.shape[:2], 2, 4)")[0] == Shard(1)
    assert lies("table.view(*table.shape, 1)") == (Replicate(), (5, 4, 1))


def test_sizes_that_are_chosen_say_nothing_of_what_all_ranks_have() -> None:
    sizes = "[n if at in (1, q.ndim - 1) else 1 for at, n in enumerate(q.shape)]"
    assert lies(f"table.view({sizes})")[0] == Replicate()


@pytest.mark.parametrize(
    "line", ["q.view(q.shape[1], q.shape[0], 8)", "q.view(q.shape[1], *q.shape[:1], 8)", "q.reshape(*q.shape[1:], -1)"]
)
def test_views_through_samples_are_told(line: str) -> None:
    assert isinstance(lies(line)[0], PerRank)


def test_sizes_that_a_loop_multiplies() -> None:
    """They go round in a circle: what they are computed of is asked once."""
    code = "width = 1\nfor (x,) in loader:\n    width = width * 2\n    result = torch.zeros(width, 3)\n"
    program = traced(f"{HEAD}{code}")
    assert propagate(program, lambda source: Shard(0), catalog=CATALOG).value(bound(program, "result")) == Replicate()
