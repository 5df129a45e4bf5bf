"""The numbers that a program counts by: which of them are one number, and how long a slice is."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from autodist.placement.arguments import keys_of
from autodist.placement.call import OTHER_SIZE
from autodist.placement.placements import Placements
from autodist.program import MANY, Operation, Value

READS = ("object.", "operator.", "getitem", "name")
"""Beginnings of the names of operations that give the same again where they are given the same."""
SAME = ("builtins.int", "builtins.min")
"""What gives back a number: `int(args.batch_size)`, and `min(i + size, n)` for all batches but the last."""
DEEPEST = 4


def key(size: Value | None, depth: int = DEEPEST) -> frozenset[Hashable] | None:
    """What tells numbers apart: two reads of a setting have one key. None for no number, and for any."""
    if size is None or not size or MANY.constants <= size.constants:
        return None
    found: set[Hashable] = {each for each in size.constants if each[1] is not None}
    for each in size.operations:
        found |= _keys_of(each, depth - 1)
    return frozenset(found) or None


def _keys_of(operation: Operation, depth: int) -> frozenset[Hashable]:
    inputs = [key(each, depth) if depth else None for each in operation.inputs]
    if operation.name == "builtins.int" and inputs and inputs[0]:
        return inputs[0]
    if not inputs or None in inputs or not operation.name.startswith(READS):
        return frozenset([operation])
    return frozenset([(operation.name, tuple(inputs))])


def is_several(size: Value | None) -> bool:
    """Whether it may be more than a single thing."""
    return key(size) is not None and size is not None and size.constant != 1


def as_slice(key_: Value) -> Operation | None:
    """The slice that a part of a subscript is."""
    found = key_.operation
    return found if found is not None and found.name == "builtins.slice" else None


def is_whole(cut: Operation) -> bool:
    """`:`"""
    return all(each.is_constant and each.constant is None for each in cut.inputs)


def first_key(subscript: Operation) -> Value | None:
    """What a subscript says of the first axis: `i` of `x[i, :]`."""
    if subscript.name != "getitem" or len(subscript.inputs) < 2:
        return None
    return (keys_of(subscript.inputs[1]) or [subscript.inputs[1]])[0]


def first_slice(subscript: Operation) -> Operation | None:
    """The slice along the first axis that a subscript takes: `x[start:stop]`, `x[start:stop, :]`."""
    first = first_key(subscript)
    found = as_slice(first) if first is not None else None
    return None if found is None or is_whole(found) else found


def second_slice(subscript: Operation) -> Operation | None:
    """The slice along the second axis that a subscript takes of all that lies along the first: `x[:, start:stop]`."""
    parts = keys_of(subscript.inputs[1]) if subscript.name == "getitem" and len(subscript.inputs) > 1 else None
    cuts = [as_slice(each) for each in (parts or [])[:2]]
    if len(cuts) < 2 or cuts[0] is None or cuts[1] is None or not is_whole(cuts[0]) or is_whole(cuts[1]):
        return None
    return cuts[1]


def lengths(cut: Operation) -> Iterator[Value]:
    """How long a slice may be: `size` of `[i : i + size]`, of `[i * size : (i + 1) * size]`, of `[:size]`, and of
    `range(0, n, size)` where it starts."""
    start, stop = cut.inputs[0], cut.inputs[1]
    if start.constant in (None, 0) and start.is_constant:
        yield stop
    for each in (op for operation in stop.operations for op in _without(operation)):
        if each.name == "operator.add" and _meets(each.inputs[0], start):
            yield each.inputs[1]
        elif each.name == "operator.add" and _meets(each.inputs[1], start):
            yield each.inputs[0]
        elif each.name == "operator.mul":
            yield from _factors(each, start)
    for each in start.operations:
        if each.name == "range.index" and len(each.inputs) > 2:
            yield each.inputs[2]


def left_over(piece: Operation, lying: Placements) -> int | None:
    """How many samples the last piece of `range(0, n, size)` has where the others have more, if the source tells; 0 if
    it has as many."""
    cut = first_slice(piece)
    for each in cut.inputs[0].operations if cut is not None else ():
        if each.name == "range.index" and len(each.inputs) > 2 and each.inputs[0].constant == 0:
            total, size = (_told(bound, lying) for bound in each.inputs[1:3])
            return total % size if total and size else None
    return None


def _told(number: Value, lying: Placements) -> int | None:
    """A number that is written down, or is how long a tensor is: `n`, `len(x)`, `x.shape[0]`, `x.size(0)`"""
    of = number.operation
    if type(number.constant) is int:
        return number.constant
    if of is not None and of.name == "getitem" and of.inputs[1].constant == 0:
        of = of.inputs[0].operation
    told = of is not None and of.name.endswith(("builtins.len", ".shape", ".size"))
    told = told and of is not None and all(each.constant == 0 for each in of.inputs[1:])
    sizes = lying.size(of.inputs[0]) if of is not None and told else None
    return sizes[0] if sizes and sizes[0] != OTHER_SIZE else None


def _without(operation: Operation) -> Iterator[Operation]:
    if operation.name in SAME:
        for each in operation.inputs:
            yield from each.operations
    else:
        yield operation


def _meets(one: Value, other: Value) -> bool:
    """Whether two numbers are one, as far as can be told: both may also be what they begin with."""
    alike = one.operations == other.operations and one.constants == other.constants
    return one is other or alike or key(one) is not None and key(one) == key(other)


def _factors(product: Operation, start: Value) -> Iterator[Value]:
    for other in start.operations:
        if other.name == "operator.mul":
            for mine in product.inputs:
                if any(key(mine) == key(each) for each in other.inputs if key(each) is not None):
                    yield mine
