"""What loops over samples come to, count, and carry from one round to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cached_property

from autodist import operations
from autodist.placement import arguments
from autodist.placement.call import ROWS
from autodist.placement.decided import DECIDED, DECIDED_BEFORE, decided, is_behind
from autodist.placement.lattice import PARTS, PIECES, Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.reading import LOADED, Reading
from autodist.placement.sizes import AGAIN
from autodist.program import Operation, Region, Value, closure, held
from autodist.source import walk

CARRIED = "an earlier round of the loop left what it is computed from, and each rank goes round with its own samples"
LAST = "it is what a loop has left of its rounds, and each rank goes round with its own samples"
BESIDE_GATHERED = "it goes through a rank's own samples beside those of all ranks"
NUMBERING = frozenset("same linear elementwise add multiply divide".split())
"""Classes of operations that compute with numbers, one by one."""
ADDING = frozenset(["add", "same", "scatter"])
"""Classes of operations by which loops add up: in which order they come to the samples makes no difference."""
KEEPING = frozenset("max min maximum minimum fmax fmin getitem setitem".split())
"""The names of those that keep the largest or smallest of all rounds, and of what reads and puts back what is added."""
TAKEN = ("iterate", "builtins.list.pop")
"""The names of what takes one element after the other out of lists."""
LENGTHS = ("builtins.max", "builtins.min")
"""The names of what mostly keeps lengths, to which samples are filled up."""
TESTS = frozenset(f"operator.{each}" for each in ("is_", "is_not", "eq", "ne", "not_"))
"""The names of those that tell None from other things."""
ABOUT = frozenset("length fact fill_like random_like".split())
"""Classes of operations that tell of a value what it has in common with those of other rounds."""


def is_of_one(placement: Placement | None) -> bool:
    """Whether it is of the sample that a loop has come to, also beside what was gathered."""
    beside = isinstance(placement, PerRank) and placement.reason == BESIDE_GATHERED
    return beside or isinstance(placement, Each)


class Loops(Reading):
    """Values of the rounds of loops."""

    _are_shared_out = True
    """Whether each rank has rounds of its own of the loops that go over what is sharded."""

    def _in_its_round(self, operation: Operation, placement: Placement | None) -> Placement | None:
        """How a result lies, if no earlier round of a loop over samples has left what it is computed from, and neither
        that nor the number that a rank gives a sample decides over it."""
        if placement is None or isinstance(placement, PerRank) and placement.operation != "join":
            return placement
        given = operation.inputs[1:] if operation.name == "setitem" else operation.operands
        if operation in self._given_before and any(self._is_of_earlier_round(each, operation) for each in given):
            return PerRank(operation.name, CARRIED)
        if isinstance(placement, Each) and self._is_behind_loop(operation):
            return PerRank(operation.name, LAST)
        adds = isinstance(placement, Partial) and operation in self._cyclic and self._goes_over_samples(operation)
        numbers = decided(self._program).get(operation, ()) if isinstance(placement, Each) or adds else ()
        if any(self._counts_own(each) for each in numbers if isinstance(each, Operation)):
            return PerRank(operation.name, DECIDED)
        before = any(self._carries_samples(each) for each in numbers if isinstance(each, Region))
        return PerRank(operation.name, DECIDED_BEFORE) if before else placement

    @cached_property
    def _given_before(self) -> frozenset[Operation]:
        """The operations that are given what earlier rounds may have left."""
        return frozenset(each for each in self._program.operations if any(map(_carriers, each.operands)))

    def _is_of_earlier_round(self, value: Value, user: Operation) -> bool:
        """Whether an earlier round, that was of another sample, may have left a value, other than a sum so far that is
        added to, and what is the same after each round."""
        if not any(map(self._carries_samples, _carriers(value))):
            return False
        known, cycle = user.known, self._cycles.get(user, frozenset())
        if user.name == "getitem" and any(map(self._counts_own, held(user.inputs[1]))):
            return False  # `found[i]`
        if known is not None and known.cls in ABOUT:
            return False
        if not cycle.isdisjoint(value.operations) and self._adds_up_in(cycle):
            return False
        made, told = value.operations, value.constants
        if made and all(each.name == "getitem" and any(map(self._counts_own, held(each.inputs[1]))) for each in made):
            return False  # `x[i]`, where a round puts in what is computed of it
        told -= set() if user.name in TESTS else {(type(None), None)}  # with which nothing is computed
        return len(made) + len(told) > 1 or any(self._varies(each) for each in made) or bool(value.things)

    def _is_behind_loop(self, operation: Operation) -> bool:
        """Whether it is computed of what a loop over samples has left, once that has ended."""
        known = operation.known
        if operation.name in arguments.SHAPES or known is not None and known.cls in ABOUT:
            return False
        if any(each.kind == "loop" and self._comes_to_each(each) for each in operation.region.around()):
            return False
        left = {op for value in operation.operands for op in value.operations if op.name not in LENGTHS}
        loops = {each.node for each in self._loops_over_samples(Value(frozenset(left)))}  # each in any context
        return bool(loops) and loops.isdisjoint(each.node for each in operation.region.loops)

    def _varies(self, operation: Operation) -> bool:
        """Whether it gives something else in each round."""
        return operation in self._cyclic or self._found.of.get(operation, Replicate()) != Replicate()

    def _adds_up_in(self, cycle: frozenset[Operation]) -> bool:
        """Whether what operations are given of earlier rounds is what they add to, or the largest or smallest yet."""
        known = [(each.name.rpartition(".")[2], each.known) for each in cycle]
        return all(name in KEEPING or told is not None and told.cls in ADDING for name, told in known)

    @cached_property
    def _cycles(self) -> dict[Operation, frozenset[Operation]]:
        """The operations that are given by way of each other what they gave before, by each of them."""
        return {each: cycle for cycle in self._program.cycles for each in cycle}

    def _carries_samples(self, loop: Region) -> bool:
        """Whether what a loop carries comes from one of a rank's samples to the next, and not from one part of a sample
        to another."""
        loading = any(each.kind in ("read", "collate", "worker") for each in loop.around())
        shared = self._are_shared_out and not loading and loop not in self._plan.rounds
        return shared and self._comes_to_samples(loop)

    def _comes_to_samples(self, loop: Region) -> bool:
        """Whether a loop goes over a rank's samples, and not over the parts of one of them."""
        return self._comes_to_each(loop) and not self._is_over_parts(loop)

    def _adds_parts(self, operation: Operation) -> bool:
        """Whether it adds up, in rounds of loops within one over samples, parts of one of them."""
        cycle = self._cycles.get(operation, frozenset())
        kept = (each for op in cycle for each in op.operands if not cycle.isdisjoint(each.operations))
        loops = frozenset[Region]().union(*(each.carried_by for each in kept))
        within = any(map(self._comes_to_samples, operation.region.loops - loops))
        return bool(loops) and within and not any(map(self._comes_to_samples, loops))

    def _is_over_parts(self, loop: Region) -> bool:
        """Whether a loop goes over the parts of one sample: `for box in boxes`, `for i, box in enumerate(boxes)`"""
        over = loop.subject
        if isinstance(self._found.value(over), Each):
            return True
        heads = [each for each in held(over) if each.name in ("iterate", "range.index")]
        of = [self._found.of.get(each) if each.name == "range.index" else self._first(each) for each in heads]
        parts = (isinstance(each, Each) and each.loop.startswith(PARTS) for each in of)
        return any(parts) or any(isinstance(p, Each) for p, op in zip(of, heads, strict=True) if op.name == "iterate")

    def _goes_over_samples(self, operation: Operation) -> bool:
        """Whether the loop around an operation goes over a rank's samples, one by one."""
        return any(each.kind == "loop" and self._is_over_samples(each) for each in operation.region.around())

    @cached_property
    def _taken_by(self) -> dict[ast.AST, Region]:
        """The loops, by what they are written to go over, and to call each of it."""
        written = [(loop, loop.node) for loop in self._program.loops]
        heads = [(loop, at) for loop, at in written if isinstance(at, (ast.For, ast.comprehension))]
        return {each: loop for loop, at in heads for part in (at.iter, at.target) for each in walk(part)}

    def _meets_another(self, given: Iterable[Value]) -> bool:
        """Whether one sample of a rank meets each of its others, which a loop within the loop over them has come to."""
        lying = [self._loops_over_samples(each) for each in given if isinstance(self._operand(each), Each)]
        pairs = [(one, other) for at, one in enumerate(lying) for other in lying[at + 1 :] if not one & other]
        if any(a in b.around() or b in a.around() for one, other in pairs for a in one for b in other):
            return True
        taken = [self._taken_at(each) for each in given if isinstance(self._operand(each), Each)]
        both = ((a, b) for at, one in enumerate(taken) for other in taken[at + 1 :] for a in one for b in other)
        return any(a.node is not b.node and a.inputs == b.inputs and a.region is b.region for a, b in both)

    @staticmethod
    def _taken_at(value: Value) -> set[Operation]:
        """Where a round takes samples out of lists, from which a value is computed: `rows.pop()`"""
        above = closure(value.operations, lambda op: () if op.name in TAKEN else op.given)
        return {each for each in above if each.name in TAKEN and isinstance(each.node, ast.Call)}

    def _loops_over_samples(self, value: Value) -> set[Region]:
        """The loops that have taken the samples from which a value is computed."""

        def samples(operation: Operation) -> list[Operation]:
            above = (each for part in operation.operands for each in held(part))
            return [each for each in above if each is not operation and isinstance(self._found.of.get(each), Each)]

        above = closure([each for each in held(value) if isinstance(self._found.of.get(each), Each)], samples)
        taken = (self._taken_by.get(each.node) for each in above if not samples(each))
        return {loop for loop in taken if loop is not None}

    def _numbers_of_own(
        self, operation: Operation, known: operations.Operation, given: Iterable[Value]
    ) -> PerRank | Partial | None:
        """What is computed from the number that a rank's sample has among its own, `0.5 * i`, or a list of these: the
        sample has another number in the batch. To take the sample by it, or to compare it, says which one it is. One
        more than the last of them counts the samples."""
        for value in given:
            listed = [
                op for each in value.things for part in getattr(each, "contents", tuple)() for op in part.operations
            ]
            numbers = [*value.operations] or listed * (known.cls == "same")
            counted_by = {self._found.of.get(each) for each in numbers if each.name == "range.index"}
            loops = {each.loop for each in counted_by if isinstance(each, Each) and not each.loop.startswith(PARTS)}
            if known.cls in NUMBERING and len(loops) == 1 and PIECES not in loops:
                if all(each.name == "range.index" for each in numbers):
                    last = any(is_behind(operation, each) for each in numbers)  # it counts the rounds
                    one = operation.name == "operator.add" and 1 in [each.constant for each in operation.inputs]
                    if last and one and loops == {ROWS} and all(map(_begins_with_zero, numbers)):
                        return Partial("sum", ROWS)  # `i + 1`
                    if value.operations:
                        return PerRank("range.index" if last else known.name, AGAIN)
                    by_others = any(map(self._is_lost, self._tests_of(value)))
                    return PerRank(known.name, AGAIN, rows="" if by_others else self._picked(value) or loops.pop())
        return None

    def _beside(
        self, operation: Operation, placement: Placement | None, others: Mapping[Operation, Placement | None]
    ) -> PerRank | None:
        """What becomes of what a loop takes in rounds of ``others``: of a rank's own samples, where it is taken of what
        all ranks have, `zip(outputs, weights)`, or of pieces along another axis, `zip(x, x.split(1, dim=1))`, and of
        samples that were gathered beside those."""
        over = operation.inputs[0] if operation.inputs else Value()
        if isinstance(placement, Each) and placement.loop == ROWS:
            whole = (each for each, lies in others.items() if lies == Replicate())
            return PerRank(operation.name, BESIDE_GATHERED) if any(map(self._are_gathered, whole)) else None
        counts = operation.name == "range.index"
        if isinstance(placement, Shard) and not placement.in_parts:
            beside = any(isinstance(each, Each) and each.loop == ROWS for each in others.values())
            return PerRank(operation.name, AGAIN) if beside else None
        if placement != Replicate() or over.operations and not counts and not any(e.is_tensor for e in over.operations):
            return None
        if not any(isinstance(each, Each) and each.loop == ROWS for each in others.values()):
            return None
        if not counts and self._are_gathered(operation):
            return PerRank(operation.name, BESIDE_GATHERED)
        above = closure(over.operations, lambda op: op.given)
        gathered = not counts and any(each.name in LOADED or each in self._plan.placed for each in above)
        return None if gathered else PerRank(operation.name, AGAIN)

    def _are_gathered(self, rounds: Operation) -> bool:
        """Whether what a loop goes over are samples of all ranks that a plan gathers."""
        above = {rounds, *closure(rounds.given, lambda op: op.given)}
        taken = (each for op in above for each in self._plan.taken.get(op, {}).values())
        return Replicate() in {*taken, *(self._plan.placed.get(each) for each in above)}

    def _are_own_numbers(self, value: Value) -> bool:
        """Whether loops count a rank's samples by it, and one process the batch's."""
        return bool(value.operations) and all(map(self._counts_own, value.operations))

    def _counts_own(self, operation: Operation) -> bool:
        lying = self._found.of.get(operation)
        return (
            operation.name == "range.index"
            and isinstance(lying, Each)
            and lying.loop not in (PIECES, "range")
            and not lying.loop.startswith(PARTS)
        )


def _begins_with_zero(number: Operation) -> bool:
    """Whether numbers begin with zero: `range(8)`, `enumerate(x)`"""
    first, *others = [each.constant for each in number.inputs] or [0]
    return first == 0 if others or "of" in number.keywords or not number.inputs else True


def _carriers(value: Value) -> frozenset[Region]:
    """The loops of which it may be what an earlier round has left, or hold that."""
    if not value.things:
        return value.carried_by
    inside = (each for thing in value.things for each in getattr(thing, "contents", tuple)())
    return value.carried_by.union(*(each.carried_by for each in inside))
