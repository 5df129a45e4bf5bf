"""What is known of values while they are placed: how they lie, and what loops go over."""

from __future__ import annotations

from autodist.catalog import Catalog
from autodist.operations import Table
from autodist.placement import arguments
from autodist.placement.call import ROWS
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard, counted
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.whole_numbers import WholeNumbers
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held
from autodist.trace.things import Sequence

SOURCES = (BATCH, FIELDS)
LOADED = (BATCH, FIELDS, SAMPLE)
PADDING = ("pad_sequence", "pad_packed_sequence")
"""Names of what makes samples as long as the longest of them."""


class Reading:
    """Values of a program, some of which are placed."""

    def __init__(self, program: Program, plan: Plan, table: Table, catalog: Catalog | None) -> None:
        self._program, self._plan, self._table, self._catalog = program, plan, table, catalog
        self._found = Placements()
        self._cyclic = program.cyclic
        self._whole_numbers = WholeNumbers(table)

    def _operand(self, value: Value) -> Placement | None:
        """How a value lies, or what is in it."""
        if any(isinstance(self._found.joint(keys.operations), (Each, PerRank)) for keys in arguments.keys(value)):
            return PerRank("builtins.dict", "its keys are each rank's own")
        found = self._found.joint(held(value))
        if any(getattr(each, "kind", "") == "set" for each in value.things) and isinstance(found, (Each, Shard)):
            return PerRank("builtins.set", "which of its elements are alike, all samples together tell")
        picked = self._picked(value) if value.things and not value.operations else ""
        if picked and found is None or isinstance(found, Each) and value.things and not value.operations:
            return Shard(0, rows=picked or ROWS)  # a list with one for each sample
        return found

    def _is_as_long(self, value: Value) -> bool:
        """Whether it has one size on all ranks: one of their samples, and a list that holds no single samples."""
        if value.operations or not value.things or not all(isinstance(each, Sequence) for each in value.things):
            return self._is_one_of_many(value)
        return not self._picked(value) and not isinstance(self._found.joint(held(value)), (Each, PerRank, type(None)))

    def _picked(self, value: Value) -> str:
        """By what a list has been given some of a rank's samples, and not others; empty if it has all of them."""
        tests = {op for thing in value.things for op in getattr(thing, "picked", Value()).operations}
        apart = (each for each in tests if not isinstance(self._found.of.get(each, Replicate()), Replicate))
        return ",".join(sorted(f"%{each.number}" for each in apart))

    def _size_as(self, size: Value, counts: bool) -> Placement | None:
        """How a size lies, which may be the number of samples of the whole batch."""
        return Partial("sum", ROWS) if counts else self._operand(size)

    def _goes_over_samples(self, operation: Operation) -> bool:
        """Whether the loop around an operation goes over a rank's samples, one by one."""
        return any(each.kind == "loop" and self._is_over_samples(each) for each in operation.region.around())

    def _is_over_samples(self, loop: Region) -> bool:
        over = self._operand(loop.subject)
        if not isinstance(over, Shard):
            return isinstance(over, Each)
        tuples = any(self._gives_several(each) for each in loop.subject.operations)
        several = held(Value(things=loop.subject.things))  # of a loader, or of several side by side
        batches = any(each.name in LOADED or each in self._plan.placed for each in several)
        batches = batches or any(each.name == FIELDS for each in loop.subject.operations)
        return not (tuples or batches) and over.axis == 0

    def _gives_several(self, operation: Operation) -> bool:
        """Whether an operation gives a tuple of tensors, and not one."""
        known = self._table.find(operation.name)
        if operation.name == "torch.autograd.grad":
            return True
        if known is None:
            return operation.owner is not None and operation.name not in SOURCES
        along = known.short in arguments.SEVERAL and (len(operation.inputs) > 1 or bool(operation.keywords))
        return along or known.cls == "sequence" or known.short == "LSTMCell"

    def _is_one_of_many(self, value: Value) -> bool:
        """Whether it is one of a rank's samples, `x[0]`, which are all of one size: nobody has padded them to the
        longest."""
        picked = [each for each in value.operations if isinstance(self._found.of.get(each), PerRank)]
        if not picked or any(each.name != "getitem" for each in picked):
            return False
        given = closure(
            {op for each in picked for op in each.inputs[0].operations},
            lambda each: (op for v in each.operands for op in held(v) if isinstance(self._found.of.get(op), Shard)),
        )
        shared = all(isinstance(self._found.of.get(each), Shard) for each in given)
        return shared and not any(each.name.endswith(PADDING) for each in given)

    def _shaped_like(self, operation: Operation) -> Operation | None:
        """What reads the shape that a tensor is made with: `torch.randn(x.shape)`, `torch.zeros(*x.size())`"""
        given = [*operation.inputs[-1:], *(each for name, each in operation.keywords.items() if name in ("*", "size"))]
        for value in given:
            for each in value.operations:
                shape = next(iter(each.inputs[0].operations), each) if each.name == "iterate" and each.inputs else each
                if shape.name in arguments.SHAPES and len(shape.inputs) == 1:
                    return shape
        return None

    def _spread_out(self, operation: Operation) -> Placement | None:
        """What is replicated, repeated for each of a rank's samples: `token.expand(len(x), -1)`"""
        if self._operand(operation.inputs[0]) != Replicate():
            return None
        if operation.name.endswith("repeat_interleave"):  # `torch.arange(4).repeat_interleave(n)`
            rows, over = counted(self._operand(operation.inputs[-1])), operation.inputs[0].operations
            numbers = {each.inputs[0].constant for each in over if each.name.endswith(".arange") and each.inputs}
            order = f"{numbers.pop()} in turn" if len(numbers) == 1 else "each in turn"
            return Shard(0, order=order, rows=rows) if rows and len(operation.inputs) > 1 else None
        told = arguments.sizes_of(operation)
        at = self._plan.counts(operation, told)
        for place, each in enumerate(told):
            if rows := counted(self._size_as(each, place == at)):
                return Shard(place, rows=rows)
        return None
