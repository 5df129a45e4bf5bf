"""What is shared out over the ranks: batches of loaders that train, and those that a step makes by hand.

A batch is made by hand by a draw of a number of samples, by a slice of the data that is another one in each step, or by
a step that takes all of the data. What has as many rows as such a batch is a part of it.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autodist import operations
from autodist.catalog import Catalog
from autodist.operations import Table
from autodist.placement import arguments
from autodist.placement.lattice import Partial, Placement, Replicate, Shard
from autodist.placement.plan import Plan
from autodist.placement.propagate import Placements, propagate
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, held
from autodist.solve import sizes
from autodist.source import is_generator

LOADERS = (BATCH, FIELDS, SAMPLE)
SPLITS = ("split", "array_split", "chunk", "tensor_split")
NUMBERS = ("builtins.len", "torch.Tensor.size", "torch.Tensor.shape")
MODULE = "torch.nn.Module"
LEARNED = ("Parameter", ".requires_grad_", ".weight", ".bias")
"""Ends of the names of operations that give what is trained."""


@dataclass(frozen=True)
class Sources:
    """What each rank has its share of."""

    training: frozenset[Any] = frozenset()
    """The loaders whose batches reach a gradient."""
    batches: frozenset[Operation] = frozenset()
    """The draws and slices that a step makes its batch of."""
    wholes: frozenset[Operation] = frozenset()
    """The tensors with all of the data of which a step takes its rows."""
    axis: int = 0
    """Along which axis the samples of hand-made batches lie."""
    rows: frozenset[Hashable] = frozenset()
    """The keys of the numbers of samples that a whole batch has."""
    reaching: frozenset[Operation] = frozenset()
    """What gradients are computed from."""
    steps: frozenset[Operation] = frozenset()
    """What of that is computed anew in each step."""
    taken: Mapping[Operation, Mapping[Operation, Placement]] = field(default_factory=dict)

    def placement_of(self, operation: Operation) -> Placement:
        """How what a source gives lies over the ranks."""
        shared = operation in self.batches or operation.owner in self.training
        return Shard(self.axis if operation in self.batches else 0) if shared else Replicate()

    def counts(self, operation: Operation, given: Row[Value]) -> int | None:
        """Which of some sizes is the number of samples of the whole batch, in what gradients are computed from."""
        if not self.rows or operation not in self.reaching:
            return None
        places = range(len(given)) if operation in self.steps else range(1)
        return next((at for at in places if sizes.key(given[at]) in self.rows), None)

    @cached_property
    def plan(self) -> Plan:
        """What placements are propagated from."""
        return Plan(self.placement_of, {each: self.placement_of(each) for each in self.batches}, self.taken, self.counts)


def sources(program: Program, catalog: Catalog, table: Table | None = None) -> Sources:
    """What each rank has its share of, in a program."""
    reading = _Reading(program, catalog, table or operations.load())
    found = reading.by_rows()
    other = reading.by_columns(found)
    if other is None:
        return found
    return other if reading.steps_along(found) or reading.losses(other) > reading.losses(found) else found


class _Reading:
    def __init__(self, program: Program, catalog: Catalog, table: Table) -> None:
        self._program, self._catalog, self._table = program, catalog, table
        self._backward = [each.operation for each in program.of("backward")]
        self._reaching = self._upstream(self._backward)
        self._ordered = sorted(self._reaching, key=lambda each: each.number)
        self._around = frozenset(loop for each in self._backward for loop in each.region.loops)
        self._steps = frozenset(loop for each in self._backward for loop in _innermost(each.region))

    def by_rows(self) -> Sources:
        """Its sources, where the samples of a batch lie along the first axis."""
        loaders = [each for each in self._ordered if each.name in LOADERS and each.owner is not None]
        if loaders:
            training = frozenset(each.owner for each in loaders)
            told = (size for each in training for size in _batch_sizes(each))
            return self._found(loaders, training=training, rows=_keys(told))
        noise = [each for each in self._ordered if not self._in_module(each)]
        made = self._made(self._ordered, noise=False) or self._made(noise, noise=True)
        if not made:
            return self._whole(0)
        rows = _keys(size for told in made.values() for size in told)
        return self._found(made, batches=frozenset(made), rows=rows)

    def _made(self, operations_: Iterable[Operation], noise: bool) -> dict[Operation, list[Value]]:
        """What makes the batch of a step, and how many samples it may give: what is made of that is a part of it."""
        made: dict[Operation, list[Value]] = {}
        sampled: set[Operation] = set()
        for each in operations_:
            if each not in sampled and sampled.isdisjoint(_given(each)):
                number = self._number(each) if noise or self._chooses(each) else None
                told = [number] if number is not None else self._cut(each)
                if told is not None:
                    made[each] = told
                    sampled |= self._downstream([each])
        return made

    def by_columns(self, found: Sources) -> Sources | None:
        """Its sources, where they lie along the second axis: of all the data, which slices step through."""
        if found.training:
            return None
        if found.wholes:
            return self._whole(1)
        if not all(sizes.first_slice(each) or len(self._shape(each)) > 1 for each in found.batches):
            return None
        second = _keys(size for each in found.batches for size in self._shape(each)[1:2])
        rows = second or _keys(size for each in self._upstream(found.batches) for size in _laid_out(each))
        return self._found(found.batches, batches=found.batches, axis=1, rows=rows)

    def steps_along(self, found: Sources) -> bool:
        """Whether slices step along sequences: `x = text[i : i + n]; y = text[i + 1 : i + 1 + n]`."""
        starts: dict[Value, set[Hashable]] = {}
        for each in found.batches:
            cut = sizes.first_slice(each)
            if cut is not None:
                starts.setdefault(each.inputs[0], set()).add(sizes.key(cut.inputs[0]))
        return any(len(each) > 1 for each in starts.values())

    def losses(self, found: Sources) -> int:
        """How many losses are means or sums over the samples of all ranks."""
        placements = propagate(self._program, found.plan, self._table, self._catalog)
        lying = [placements.value(each.inputs[0]) for each in self._backward if each.inputs]
        return sum(isinstance(each, Partial) for each in lying)

    def _found(self, ends: Iterable[Operation], **what: Any) -> Sources:
        reaching = self._upstream(self._backward, frozenset(ends))
        return Sources(reaching=reaching, steps=frozenset(filter(self._in_training, reaching)), **what)

    def _upstream(self, ends: Iterable[Operation], stop: frozenset[Operation] = frozenset()) -> frozenset[Operation]:
        """What some operations are given, and what that is computed from."""
        found: set[Operation] = set()
        pending = [each for end in ends for each in _given(end)]
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += () if each in stop or self._is_made_there(each) else _given(each)
        return frozenset(found)

    def _downstream(self, starts: Iterable[Operation]) -> set[Operation]:
        """What is computed of some operations, on the way to a gradient."""
        found: set[Operation] = set()
        pending = [*starts]
        while pending:
            for each in self._program.users[pending.pop()]:
                if each not in found and each in self._reaching:
                    found.add(each)
                    pending.append(each)
        return found

    # draws

    def _number(self, operation: Operation) -> Value | None:
        """How many samples an operation draws anew in each step; None for one, and for an order of all samples."""
        told = self._shape(operation)
        if not told or not sizes.is_several(told[0]) or not self._in_step(operation):
            return None
        of = sizes.key(operation.inputs[0]) if len(operation.inputs) > 1 else None
        return None if of == sizes.key(told[0]) and self._chooses(operation) else told[0]

    def _shape(self, operation: Operation) -> list[Value]:
        """The sizes of what is drawn."""
        known = self._table.find(operation.name)
        return arguments.sizes_of(operation, known) if known is not None and known.cls == "random" else []

    def _chooses(self, operation: Operation) -> bool:
        """Whether it draws numbers of samples, and not noise."""
        known = self._table.find(operation.name)
        return known is not None and "index_draw" in self._catalog.roles(known.name)

    def _in_step(self, operation: Operation) -> bool:
        """Whether it is in the innermost loop around a step, or in one in which a generator makes batches."""
        loops = set[Region]()
        for region in operation.region.around():
            if region.function is not None and is_generator(region.function):
                return any(_yields(each) for each in loops)
            loops |= {region} if region.kind == "loop" else set()
        return not self._steps.isdisjoint(operation.region.loops)

    def _in_module(self, operation: Operation) -> bool:
        """Whether a module computes it, of its input or when it is made."""
        for region in operation.region.around():
            node = region.node
            for each in self._program.at(node.func).things if isinstance(node, ast.Call) else ():
                if "module" in getattr(each, "roles", ()) or MODULE in getattr(each, "libraries", ()):
                    return True
        return False

    def _is_made_there(self, operation: Operation) -> bool:
        """Whether it is a part of a module, from its constructor."""
        for region in operation.region.around():
            node = region.node
            for each in self._program.at(node.func).things if isinstance(node, ast.Call) else ():
                if MODULE in getattr(each, "libraries", ()):
                    return True
        return operation.name.endswith(LEARNED) or "requires_grad" in operation.keywords

    # slices

    def _cut(self, operation: Operation) -> list[Value] | None:
        """How long a part of the data is that an operation takes, if it takes another one in each step."""
        if operation.name == "iterate":
            return self._piece(operation)
        if operation.name != "getitem" or len(operation.inputs) < 2 or self._in_module(operation):
            return None
        if not self._in_training(operation):
            return None
        keys = arguments.parts(operation.inputs[1]) or [operation.inputs[1]]
        cut = sizes.as_slice(keys[0])
        if cut is None:
            return None
        if sizes.is_whole(cut):  # `data[:, i : i + length]`, of all rows
            along = any(sizes.varies(each, self._program) for each in keys[1:])
            return [size for each in self._upstream([operation]) for size in _laid_out(each)] if along else None
        bounds = any(sizes.varies(each, self._program) for each in cut.inputs[:2])
        return list(sizes.lengths(cut)) if bounds or self._draws_order(operation.inputs[0]) else None

    def _piece(self, operation: Operation) -> list[Value] | None:
        """`for part in torch.split(order, size)`, and the numbers that a batch sampler gives."""
        if not self._in_step(operation):
            return None
        if "batch_sampler" in getattr(operation.owner, "roles", ()):
            return list(_batch_sizes(operation.owner))
        for each in operation.inputs[0].operations if operation.inputs else ():
            if each.name.rpartition(".")[2] in SPLITS and len(each.inputs) > 1:
                return [each.inputs[1]] if each.name.endswith(".split") else []
        return None

    def _draws_order(self, base: Value) -> bool:
        """`torch.randperm(n)[:size]`, in a step"""
        before = {*held(base)}
        drawn = filter(self._chooses, before | self._upstream(before))
        return any(self._in_step(each) for each in drawn)

    def _in_training(self, operation: Operation) -> bool:
        """Whether it is in a loop around a step, or in one that yields batches."""
        loops = operation.region.loops
        return not self._around.isdisjoint(loops) or any(_yields(each) for each in loops)

    # all of the data

    def _whole(self, axis: int) -> Sources:
        """What a step takes of the data that was there before. What picks from data by such numbers is as long."""
        taken: dict[Operation, dict[Operation, Placement]] = {}
        seen, pending = set(self._backward), [*self._backward]
        while pending:
            user = pending.pop()
            picking = user.name == "getitem" and any(map(self._is_data, _held(user.inputs[1:])))
            for each in _held(user.inputs[1:]) if picking else _given(user):
                if self._is_data(each):
                    taken.setdefault(user, {})[each] = Shard(axis)
                elif each not in seen and not self._is_made_there(each):
                    seen.add(each)
                    pending.append(each)
        wholes = frozenset(each for given in taken.values() for each in given)
        counted = [each for each in self._program.operations if each.name in NUMBERS and _given(each) & wholes]
        rows = _keys(Value(frozenset([each])) for each in counted)
        return self._found(wholes, wholes=wholes, axis=axis, rows=rows, taken=taken)

    def _is_data(self, operation: Operation) -> bool:
        """Whether it is a tensor that was made before the steps, and is not trained."""
        return operation.is_tensor and not self._in_training(operation) and not self._is_made_there(operation)


def _held(values: Iterable[Value]) -> frozenset[Operation]:
    return frozenset(each for value in values for each in held(value))


def _given(operation: Operation) -> frozenset[Operation]:
    return _held(operation.operands)


def _keys(told: Iterable[Value]) -> frozenset[Hashable]:
    return frozenset(each for size in told if sizes.is_several(size) and (each := sizes.key(size)) is not None)


def _batch_sizes(loader: Any) -> Iterator[Value]:
    """What a loader or a batch sampler is told for the size of its batches."""
    told = loader.argument("batch_size", 1)
    if told is not None:
        yield told
    sampler = loader.argument("batch_sampler", 4)
    for each in sampler.things if sampler is not None else ():
        if (size := each.argument("batch_size", 1)) is not None:
            yield size


def _laid_out(operation: Operation) -> Iterator[Value]:
    """`columns`, of `data.view(columns, -1)`"""
    told = arguments.sizes_of(operation) if operation.name.endswith((".view", ".reshape")) else []
    if len(told) == 2 and any(each.constant == -1 for each in told):
        yield from (each for each in told if each.constant != -1)


def _innermost(region: Region) -> frozenset[Region]:
    """The loops that are next around a region, on each way to it."""
    found, seen, pending = set[Region](), set[Region](), [region]
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.kind == "loop":
            found.add(each)
        else:
            pending += [each.parent, *each.others] if each.parent is not None else each.others
    return frozenset(found)


def _yields(loop: Region) -> bool:
    """Whether a loop of a generator gives something in each of its rounds."""
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(loop.node))
