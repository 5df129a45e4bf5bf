"""What becomes of sums, means and extremes over the ranks, and of numbers that scale with how many ranks there are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_by_numbers import joins
from trials import SHARES, SIZE, TABLE, resolved

from autodist.placement import Call, Operand, Partial, PerRank, Placement, Replicate, Shard, transfer
from autodist.placement.lattice import SUMMED

PLACEMENTS: tuple[Placement, ...] = (
    Replicate(),
    Shard(0),
    Partial("sum"),
    Partial("sum", "rows"),
    Partial("mean", "rows"),
    Partial("max"),
    Partial("min"),
)
RANKS = len(SHARES)


def values(placement: Placement, sizes: tuple[int, ...] = ()) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Random numbers as they are on the whole and on each rank: equal shares where they scale with the ranks."""
    drawn = [torch.rand(sizes, dtype=torch.float64) + 0.5 for _ in SHARES]
    if isinstance(placement, Replicate):
        return drawn[0], [drawn[0] * float(RANKS) ** placement.exponent] * RANKS
    if isinstance(placement, Shard):
        whole = torch.rand((SIZE, *sizes), dtype=torch.float64) + 0.5
        return whole, list(torch.split(whole, list(SHARES)))
    assert isinstance(placement, Partial)
    if placement == Partial("sum", "rows"):
        return torch.tensor(float(SIZE)).double(), [torch.tensor(float(each)).double() for each in SHARES]
    stacked = torch.stack(drawn)
    if placement.reduce == "mean":
        weights = torch.tensor(SHARES, dtype=torch.float64).view(-1, *[1] * len(sizes)) / SIZE
        return (stacked * weights).sum(0), drawn
    reduced = {"sum": stacked.sum(0), "max": stacked.amax(0), "min": stacked.amin(0)}[placement.reduce]
    return reduced, drawn


def judged(name: str, placements: tuple[Placement, ...], function: Callable[..., Any] | None = None) -> Placement:
    """The placement of a result, which must be what joins the ranks' results."""
    torch.manual_seed(0)
    operation = TABLE.find(name)
    assert operation is not None
    run = function or RUN.get(name) or resolved(operation.name)
    pairs = [values(each) for each in placements]
    operands = [
        Operand(placement, (None,) if isinstance(placement, Shard) else tuple(whole.shape))
        for placement, (whole, _) in zip(placements, pairs, strict=True)
    ]
    equation = {"torch.einsum": "," * (len(placements) - 1) + "->"}.get(name, "")
    said = transfer(operation, Call(name, tuple(operands), equation=equation))
    whole = run(*[whole for whole, _ in pairs])
    parts = [run(*[each[rank] for _, each in pairs]) for rank in range(RANKS)]
    if isinstance(said, Partial) and said.weight == "what it is divided by":
        weights = torch.stack(pairs[1][1])
        assert torch.allclose((torch.stack(parts) * weights).sum(0) / weights.sum(0), whole)
    elif not isinstance(said, PerRank):
        assert joins(said, whole, parts), f"{name} {placements}: {said} joins {parts} to no {whole}"
    return said


@pytest.mark.parametrize("name", ["operator.add", "operator.sub", "operator.mul", "operator.truediv", "torch.maximum"])
def test_two_numbers(name: str) -> None:
    for placements in itertools.product(PLACEMENTS, repeat=2):
        judged(name, placements)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("operator.neg", None),
        ("torch.clone", None),
        ("torch.exp", None),
        ("torch.sum", None),
        ("torch.nansum", None),
        ("torch.mean", None),
        ("torch.max", None),
        ("torch.min", None),
        ("torch.prod", None),
        ("torch.argmax", None),
        ("torch.cumsum", lambda x: x.cumsum(0)),
        ("torch.reshape", lambda x: x.reshape(-1)),
        ("torch.squeeze", None),
        ("torch.unique", lambda x: x),
        ("torch.rand_like", lambda x: x),
        ("torch.einsum", lambda x: torch.einsum("->", x)),
        ("torch.masked_select", lambda x: x),
        ("torch.gather", lambda x: x),
        ("torch.nn.functional.layer_norm", lambda x: x),
        ("torch.nn.functional.mse_loss", lambda x: x),
        ("torch.nn.functional.cross_entropy", lambda x: x),
    ],
)
def test_one_number(name: str, run: Callable[..., Any] | None) -> None:
    for placement in PLACEMENTS[2:]:
        judged(name, (placement,), run)


@pytest.mark.parametrize(
    ("name", "placements", "expected"),
    [
        ("operator.add", (Partial("sum"), Partial("sum", "rows")), Partial("sum")),
        ("operator.add", (Partial("mean", "rows"), Replicate()), Partial("mean", "rows")),
        ("operator.add", (Partial("mean", "rows"), Partial("mean", "rows")), Partial("mean", "rows")),
        ("operator.mul", (Partial("mean", "rows"), Partial("sum", "rows")), Partial("sum")),
        ("operator.mul", (Partial("sum", "rows"), Partial("mean", "rows")), Partial("sum")),
        ("operator.mul", (Replicate(), Partial("mean", "rows")), Partial("mean", "rows")),
        ("operator.truediv", (Partial("sum"), Partial("sum", "rows")), Partial("mean", "rows")),
        ("operator.truediv", (Partial("sum"), Replicate()), Partial("sum")),
        ("operator.neg", (Partial("mean", "rows"),), Partial("mean", "rows")),
        ("operator.neg", (Partial("sum", "rows"),), Partial("sum", SUMMED + "rows")),
        ("torch.clone", (Partial("max"),), Partial("max")),
        ("torch.max", (Partial("max"),), Partial("max")),
        ("torch.sum", (Partial("mean", "rows"),), Partial("mean", "rows")),
    ],
)
def test_stays_reducible(name: str, placements: tuple[Placement, ...], expected: Placement) -> None:
    assert judged(name, placements) == expected


@pytest.mark.parametrize(
    ("name", "placements", "reason"),
    [
        ("operator.add", (Partial("sum"), Replicate()), "counted N times"),
        ("torch.equal", (Partial("min"), Replicate()), "not linear"),
        ("torch.stack", (Partial("sum"), Replicate()), "one is each rank's sum, another replicated"),
        ("operator.add", (Shard(0), Partial("mean", "rows")), "samples meet a number that is each rank's own"),
        ("operator.mul", (Shard(0), Partial("mean", "rows")), "samples meet a number that is each rank's own"),
        ("operator.mul", (Partial("sum"), Partial("sum")), "two numbers that are each rank's own"),
        ("operator.truediv", (Replicate(), Partial("sum")), "divides by a number that is each rank's own"),
        ("operator.neg", (Partial("max"),), "each rank's max is no sum or mean"),
        ("torch.exp", (Partial("mean", "rows"),), "not linear"),
        ("torch.max", (Partial("sum"),), "not linear"),
    ],
)
def test_says_what_mixed_the_ranks(name: str, placements: tuple[Placement, ...], reason: str) -> None:
    found = judged(name, placements)
    assert isinstance(found, PerRank) and found.operation == name and reason in found.reason


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((Replicate(), Replicate()), Replicate()),
        ((Partial("sum", "rows"), Replicate()), Shard(0)),
        ((Replicate(), Replicate(-1)), Shard(1)),
        ((Partial("sum"),), None),
        ((Partial("max"),), None),
        ((Partial("sum", "rows"), Partial("sum", "rows")), None),
    ],
)
def test_tensors_of_as_many_as_a_rank_has(sizes: tuple[Placement, ...], expected: Placement | None) -> None:
    zeros = TABLE.find("torch.zeros")
    assert zeros is not None
    found = transfer(zeros, Call("", tuple(map(Operand, sizes))))
    assert (
        found == expected if expected else isinstance(found, PerRank) and "no number of their samples" in found.reason
    )


RUN: dict[str, Callable[..., Any]] = {
    "torch.std": torch.as_tensor,
    "torch.einsum": torch.mul,
    "torch.stack": lambda *x: torch.stack(x),
}
LOCAL_SIZE = Replicate(-1)
"""A batch size per rank: a third of the global one, on three ranks."""


@pytest.mark.parametrize(
    ("name", "placements", "expected"),
    [
        ("operator.mul", (LOCAL_SIZE, Replicate()), Replicate(-1)),
        ("operator.truediv", (Replicate(), LOCAL_SIZE), Replicate(1)),
        ("operator.truediv", (LOCAL_SIZE, LOCAL_SIZE), Replicate()),
        ("operator.add", (LOCAL_SIZE, LOCAL_SIZE), Replicate(-1)),
        ("torch.einsum", (LOCAL_SIZE, LOCAL_SIZE), Replicate(-2)),
        ("operator.neg", (LOCAL_SIZE,), Replicate(-1)),
        ("torch.sum", (LOCAL_SIZE,), Replicate(-1)),
        ("operator.add", (LOCAL_SIZE, Replicate()), None),
        ("torch.exp", (LOCAL_SIZE,), None),
        ("torch.std", (LOCAL_SIZE,), None),
    ],
)
def test_scales_with_the_number_of_ranks(
    name: str, placements: tuple[Placement, ...], expected: Placement | None
) -> None:
    found = judged(name, placements)
    assert found == expected if expected is not None else isinstance(found, PerRank) and "scales" in found.reason


def test_a_sum_divided_by_a_rank_s_batch_size_is_n_times_the_mean() -> None:
    division = TABLE.find("operator.truediv")
    assert division is not None
    found = transfer(division, Call("", (Operand(Partial("sum")), Operand(LOCAL_SIZE))))
    assert found == Partial("sum", exponent=1)
    sums, size = [3.0, 5.0, 7.0], 4
    assert sum(each / size for each in sums) * RANKS**-1 == sum(sums) / (size * RANKS)
