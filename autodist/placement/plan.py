"""What a plan says of the values that a program begins with: how they are shared out over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from autodist.placement.lattice import Placement
from autodist.program import Operation, Region, Value

Sharded: TypeAlias = Callable[[Operation], Placement]
"""How what a loader gives lies over the ranks."""
Asked: TypeAlias = tuple[Operation, Sequence[Value] | None, Placement | int | None]
"""A question to a plan, and its answer: how what an operation gives is shared out, or which of some sizes counts."""


def _nowhere(operation: Operation, sizes: Sequence[Value]) -> None:
    return None


@dataclass(frozen=True)
class Plan:
    """How what a program reads or makes lies over the ranks."""

    sharded: Sharded
    placed: Mapping[Operation, Placement] = field(default_factory=dict)
    """Results that are shared out where they are computed: a slice of the data, numbers that are drawn."""
    taken: Mapping[Operation, Mapping[Operation, Placement]] = field(default_factory=dict)
    """Results that are shared out where they are used, by the operations that use them: a tensor with all the data."""
    counts: Callable[[Operation, Sequence[Value]], int | None] = _nowhere
    """Which of the sizes that an operation is given is the whole batch's number of samples, if one is."""
    rounds: frozenset[Region] = frozenset()
    """Loops of which each rank has rounds of its own, as those over the batches of an evaluation."""

    def answers_as(self, asked: Iterable[Asked]) -> bool:
        """Whether it answers some questions as another plan did."""
        return all((self.sharded(op) if told is None else self.counts(op, told)) == was for op, told, was in asked)


def changed(one: Plan, other: Plan, asked: Mapping[Operation, Sequence[Asked]]) -> set[Operation]:
    """The operations whose results, or what they are given, lie otherwise under one plan than under another, that was
    ``asked`` of them."""
    found = {each for each in {*one.placed, *other.placed} if one.placed.get(each) != other.placed.get(each)}
    found |= {each for each in {*one.taken, *other.taken} if one.taken.get(each) != other.taken.get(each)}
    if (one.sharded, one.counts) == (other.sharded, other.counts):
        return found
    return found | {each for each, questions in asked.items() if not one.answers_as(questions)}
