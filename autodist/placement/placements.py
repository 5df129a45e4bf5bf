"""How the results of operations lie over the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from autodist.placement import arguments
from autodist.placement.between_ranks import Reduced
from autodist.placement.lattice import Placement, Replicate, Shard, join
from autodist.placement.plan import Asked, Plan
from autodist.placement.shapes import Sizes
from autodist.program import VIEWS, Operation, Program, Region, Value, held
from autodist.trace.things import Sequence

ARITHMETIC = tuple(f"operator.{each}" for each in "add sub mul truediv neg pos iadd isub imul itruediv".split())
"""What gives a single number only if it is given single numbers."""


def has_gradient(backward: Operation) -> bool:
    """Whether a backward pass is given a gradient to begin with, as those of tensors are: `out.backward(gradient)`"""
    return len(backward.inputs) > 1 or "gradient" in backward.keywords


@lru_cache(maxsize=2)
def given_numbers(program: Program) -> frozenset[Operation]:
    """The operations that are given single numbers: backward passes, `loss.item()`, and what computes what these are
    given: `loss / 2`."""
    begun = [each.operation for each in program.of("backward") if not has_gradient(each.operation)]
    pending = [*begun, *(each for each in program.operations if each.name == "torch.Tensor.item")]
    found = set(pending)
    while pending:
        fresh = {op for value in pending.pop().inputs for op in value.operations if op.name in ARITHMETIC} - found
        found |= fresh
        pending += fresh
    return frozenset(found)


@lru_cache(maxsize=2)
def giving_zeros(program: Program) -> frozenset[Operation]:
    """The operations that give what sums begin with."""
    return frozenset(each for each in program.operations if arguments.gives_zeros(each))


@dataclass
class Placements:
    """How the results of operations lie over the ranks, and their sizes."""

    of: dict[Operation, Placement] = field(default_factory=dict)
    sizes: dict[Operation, Sizes] = field(default_factory=dict)
    plan: Plan | None = None
    """The plan from which they follow."""
    sample_loops: frozenset[Region] = frozenset()
    """The loops that go over a rank's samples, one by one."""
    taken: Mapping[Operation, Placement] = field(default_factory=dict)
    """How the operation that is looked at is given results of others, where it has its share of what all ranks have."""

    mixed: frozenset[Operation] = frozenset()
    """The losses that are taken for means over samples, and are otherwise different on each rank."""
    measured: set[Operation] = field(default_factory=set)
    """Those of which it was measured how they lie, and reading does not know."""
    zeros: frozenset[Operation] = frozenset()
    """The operations that give what sums begin with."""
    reduced: Reduced | None = None
    """Which of them are others once the program has reduced them over the ranks itself, if it does."""

    asked: dict[Operation, list[Asked]] = field(default_factory=dict)
    """What the plan was asked where operations were placed."""
    single: bool = False
    """Whether the operation that is looked at is given single numbers, whatever else they may be in other branches."""

    def value(self, value: Value) -> Placement | None:
        """How a value lies, whichever operation gives it; None if none has."""
        return self.joint(value.operations)

    def joint(
        self, operations_: Iterable[Operation], taken: Mapping[Operation, Placement] | None = None
    ) -> Placement | None:
        """How what one of several operations gives lies, or is ``taken``. What sums begin with lies as they do."""
        taken = self.taken if taken is None else taken
        known = [each for each in operations_ if each in self.of]
        known = self.numbers(known) if self.single else known
        if len(known) < 2:
            return self._taken_for(known[0], taken) if known else None
        known.sort(key=lambda each: each.number)
        known = self.reduced.without(known) if self.reduced is not None else known
        begun = [each for each in known if not self.begins(each)] if len(known) > 1 else known
        return joint(self._taken_for(each, taken) for each in begun or known)

    def _taken_for(self, operation: Operation, taken: Mapping[Operation, Placement]) -> Placement:
        """How a result lies, or is taken by an operation: as all ranks have it, with what it scales with."""
        found = self.of[operation]
        lying = taken.get(operation, found)
        return found if isinstance(found, Replicate) and lying == Replicate() else lying

    def numbers(self, operations_: Iterable[Operation]) -> list[Operation]:
        """Those of several results that may be single numbers, which what lies along an axis is not."""
        listed = list(operations_)
        return [each for each in listed if not isinstance(self.of.get(each), Shard)] or listed

    def begins(self, operation: Operation) -> bool:
        """Whether it gives what sums begin with, zeros or a part of them, as far as is known: `counts[0]`."""
        seen, pending = set[Operation](), [operation]
        while pending:
            each = pending.pop()
            if each in seen or each not in self.of or each in self.zeros:
                continue
            seen.add(each)
            if each.name.rpartition(".")[2] not in VIEWS or not each.inputs or self.of[each] != Replicate():
                return False
            pending += each.inputs[0].operations
        return True

    def size(self, value: Value) -> Sizes:
        """Its sizes, as far as all that may give it agree on them."""
        listed = [each for each in value.things if isinstance(each, Sequence)]
        if listed and len(listed) == len(value.things) and not value.operations:
            inner = {self.size(each.element) for each in listed if each.element.things}
            if len(inner) == 1 and all(each.element.things for each in listed):  # rows of numbers
                each = inner.pop()
                return (None, *each) if each is not None else None
        inside = list(held(value)) if value.things else list(value.operations)
        found = {self.sizes.get(each) for each in inside if each in self.of}
        if not found or None in found:
            return None if inside or value.things else ()
        lengths = {len(each or ()) for each in found}
        if len(lengths) > 1:
            return None
        rows = zip(*[each or () for each in found], strict=True)
        sizes = tuple(row[0] if len(set(row)) == 1 else None for row in rows)
        return sizes if value.operations else (None, *sizes)  # of a list of such


def joint(placements: Iterable[Placement]) -> Placement | None:
    """The placement of what lies in one of several ways."""
    result: Placement | None = None
    for each in placements:
        result = each if result is None else join(result, each)
    return result
