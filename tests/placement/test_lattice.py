"""The placements and their join."""

from __future__ import annotations

import itertools

import pytest

from autodist.operations import CLASSES, Operation
from autodist.placement import Call, Operand, Partial, PerRank, Placement, Replicate, Shard, join, transfer
from autodist.placement.lattice import told
from autodist.placement.transfer import FUNCTIONS

LATTICE: tuple[Placement, ...] = (
    Replicate(),
    Replicate(-1),
    Shard(0),
    Shard(1),
    Partial("sum"),
    Partial("sum", "rows"),
    Partial("mean", "rows"),
    Partial("mean", "tokens"),
    Partial("max"),
    Partial("min"),
    PerRank("sort", "why"),
)


def kind(placement: Placement) -> Placement | str:
    """A placement, of which it does not matter why it is none."""
    return "per rank" if isinstance(placement, PerRank) else placement


@pytest.mark.parametrize(("one", "other"), list(itertools.product(LATTICE, repeat=2)))
def test_join_is_a_least_upper_bound(one: Placement, other: Placement) -> None:
    joined = join(one, other)
    assert kind(joined) == kind(join(other, one))
    assert join(one, one) == one
    assert kind(join(joined, one)) == kind(joined) == kind(join(joined, other))
    for third in LATTICE:
        assert kind(join(joined, third)) == kind(join(one, join(other, third)))


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [
        (Replicate(), Partial("mean", "rows"), Partial("mean", "rows")),
        (Replicate(), Partial("max"), Partial("max")),
        (Partial("sum", "rows"), Partial("sum"), Partial("sum")),
        (Replicate(), Partial("sum"), "per rank"),
        (Replicate(), Shard(0), "per rank"),
        (Replicate(), Replicate(-1), "per rank"),
        (Partial("mean", "rows"), Partial("mean", "tokens"), "per rank"),
        (Shard(0), PerRank("sort", "why"), "per rank"),
    ],
)
def test_what_is_equal_on_all_ranks_is_their_mean_and_extreme(one: Placement, other: Placement, joined: object) -> None:
    assert kind(join(one, other)) == joined


def test_the_first_reason_is_kept_and_passed_on() -> None:
    lost = PerRank("torch.sort", "it works along the axis of the samples")
    assert join(lost, PerRank("torch.flip", "other")) == lost
    call = Call("", (Operand(lost, (4,)), Operand(Replicate())))
    assert transfer(Operation("operator.add", "add"), call) == lost
    assert transfer(Operation("torch.Tensor.dim", "fact"), call) == Replicate()
    assert transfer(Operation("torch.zeros_like", "fill_like"), call) == lost
    assert "torch.sort: it works along" in told(join(Shard(0), lost))
    assert [told(each) for each in LATTICE[::4]] == ["replicated", "each rank's sum", "each rank's max"]
    assert "sharded along axis 0" in told(Shard(0))


def test_each_class_has_one_transfer_function() -> None:
    assert FUNCTIONS.keys() == CLASSES.keys()
