"""Whether an evaluation is large enough that sharing it out saves time, as far as that can be read.

The functions that it takes are some twenty lines, and behind each loop ranks wait for each other once. A known number
of samples decides; of an unknown one, whether each sample is read from a file, as pictures are, or comes of a data set
that a library has stored. Arrays that are read once at the beginning may be small.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.catalog import Catalog
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Value
from autodist.source import walk
from autodist.trace.things import Heap, Object

SAMPLES = 10_000
"""From how many samples an evaluation is shared out."""
READING = frozenset("read open load".split())
STORED = "stored"
DEPTH = 5


def is_worth_sharing(over: ast.expr, program: Program, catalog: Catalog, base: Placements) -> bool:
    """Whether a loop over a loader is; ``base`` holds the sizes of what data are made of."""
    loaders = [each for each in program.at(over).things if isinstance(each, Object)]
    given = [value for each in loaders if (value := each.argument("dataset", 0)) is not None]
    data = [thing for value in given for thing in _within(value)]
    names = [name for each in data if isinstance(each, Object) for name in each.library_names]
    names += [each.name for each in data if isinstance(each, Operation)]
    if any(catalog.has(name, STORED) for name in names):
        return True
    objects = [each for each in data if isinstance(each, Object)]
    sizes = [size for each in objects if (size := _length(each, program, base)) is not None]
    if sizes:
        return max(sizes) >= SAMPLES
    loading = {each.node for each in loaders}
    return any(
        catalog.roles(each.name) & {*READING, STORED}
        for each in program.operations
        if any(region.node in loading for region in each.region.around())
    )


def _within(value: Value, depth: int = DEPTH) -> Iterator[Object | Operation]:
    """What data are, or are parts of: `Subset(data, places)`"""
    for each in value.operations if depth else ():
        yield each
        for inner in each.operands:
            yield from _within(inner, depth - 1)
    for each in value.things if depth else ():
        if isinstance(each, Object):
            yield each
            for inner in (*each.inputs, *each.keywords.values()):
                yield from _within(inner, depth - 1)
        elif isinstance(each, Heap):
            for inner in each.contents():
                yield from _within(inner, depth - 1)


def _length(data: Object, program: Program, base: Placements) -> int | None:
    """How many samples a data set has, if that is a constant."""
    if data.cls is None:
        sizes = base.size(data.inputs[0]) if data.inputs and "dataset" in data.roles else None
        return sizes[0] if sizes else None
    found = data.cls.find("__len__")
    functions = [each.node for each in found[1].things] if found else []
    returned = [node.value for each in functions for node in walk(each) if isinstance(node, ast.Return)]
    number = program.at(returned[0]).constant if len(returned) == 1 and returned[0] is not None else None
    return number if isinstance(number, int) else None
