"""How loaders lay out the batches that a `collate_fn` makes: along which axis the samples of each field lie."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autodist.catalog import Catalog
from autodist.placement import Partial, PerRank, Shard
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, Value
from autodist.solve.sources import Sources
from autodist.trace.things import Mapping as Table
from autodist.trace.things import Object, Sequence

Key = int | str | None
OTHERS = "any other key"
"""Stands for the fields of which it is not known under which keys they are."""
UNTOLD = -1
"""The axis of what lies along one or another."""


@dataclass(frozen=True)
class Layout:
    """How the fields of a batch lie by their keys, None for a batch that is one tensor."""

    axes: Mapping[Key, int] = field(default_factory=dict)
    numbers: Mapping[Key, Partial] = field(default_factory=dict)
    by_number: Operation | None = None
    """What takes the samples apart into a number of groups that is written down."""

    def is_second(self, key: Key) -> bool:
        """Whether the samples of a field lie along its second axis."""
        return self.axes.get(key, None if key is None else self.axes.get(OTHERS)) == 1

    @property
    def is_told(self) -> bool:
        """Whether the samples of no field lie along an axis whose number is not known, or a later one."""
        return all(axis in (0, 1) for axis in self.axes.values())


def layouts(program: Program, catalog: Catalog) -> Mapping[ast.AST, Layout]:
    """The layouts of all loaders that have a `collate_fn`, by where they are made."""
    if not program.batches:
        return {}
    owners = frozenset(op.owner for op in program.operations if "loader" in getattr(op.owner, "roles", ()))
    lying = propagate(program, Sources(training=owners).plan, catalog=catalog)
    grouping = [op for op in program.operations if _groups_by_number(op, program, lying)]
    by_number = {each.node: op for op in grouping for each in op.region.around()}
    return {node: _layout(batch, lying, by_number.get(node)) for node, batch in program.batches.items()}


def _groups_by_number(operation: Operation, program: Program, lying: Placements) -> bool:
    """Whether samples are taken apart into a number of groups that is written down: `rows.view(2, 4, -1)`."""
    if not operation.name.endswith((".view", ".reshape")) or not isinstance(operation.node, ast.Call):
        return False
    told = operation.node.args
    told = told[0].elts if told and isinstance(told[0], (ast.Tuple, ast.List)) else told
    first = program.at(told[0]).constant if len(told) > 1 else None
    lost = isinstance(lying.of.get(operation), PerRank) and isinstance(lying.value(operation.inputs[0]), Shard)
    return lost and type(first) is int and first > 1


def _layout(batch: Value, lying: Placements, by_number: Operation | None) -> Layout:
    axes: dict[Key, int] = {}
    numbers: dict[Key, Partial] = {}
    for key, value in fields(batch):
        places = {each.axis for op in value.operations if isinstance(each := lying.of.get(op), Shard)}
        if places:
            axes[key] = places.pop() if len(places) == 1 else UNTOLD
        elif isinstance(number := lying.value(value), Partial):
            numbers[key] = number
    return Layout(axes, numbers, by_number)


def fields(batch: Value) -> Iterator[tuple[Key, Value]]:
    if batch.operations:
        yield None, batch
    for each in batch.things:
        if isinstance(each, Sequence):
            yield from enumerate(each.parts) if each.parts is not None else [(OTHERS, each.anywhere)]
        elif isinstance(each, Table):
            yield from ((key, slot.value) for key, slot in each.entries.items())
            yield OTHERS, each.anywhere
        elif isinstance(each, Object):  # a named tuple has its fields by their places as well
            for place, (key, slot) in enumerate(each.attributes.items()):
                yield place, slot.value
                yield key, slot.value
