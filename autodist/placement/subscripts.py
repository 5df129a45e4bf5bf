"""Which numbers of a tensor a subscript takes, and along which axis they lie then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autodist.placement.along import BY_NUMBER, BY_PLACE, OF_PART, PLACES_LEFT_OUT, SAMPLES_BESIDE, SO_MANY
from autodist.placement.arguments import is_whole, keys_of
from autodist.placement.lattice import (
    PAIRS,
    PIECES,
    SUMMED,
    Each,
    Partial,
    PerRank,
    Placement,
    Replicate,
    Shard,
    counted,
)
from autodist.placement.shapes import Sizes
from autodist.placement.sizes import AGAIN
from autodist.program import EMPTY, Operation, Value, closure, held

WHOLE = (None, None, None)
DRAWN_NUMBERS = (".randint", ".choice")
"""Ends of the names of what draws numbers of samples, as many along each axis as it is told."""
HELD = frozenset("to cuda cpu long int type from_numpy as_tensor".split())
"""The names of what holds numbers elsewhere, or in another type."""
MOVING = frozenset(f"operator.{each}" for each in ("add", "sub", "mod", "xor"))
"""The names of what makes the number of another sample of that of one."""


def subscript(
    placement: Placement,
    sizes: Sizes,
    key: Value,
    lies: Callable[[Value], Placement | None],
    size: Callable[[Value], Sizes],
    number: Callable[[Value], Placement | None] | None = None,
    numbers: Callable[[Value], bool] = lambda _: False,
    counts: Callable[[Value], bool] = lambda _: False,
    base: Value = EMPTY,
) -> tuple[Placement, Sizes]:
    """The placement and the sizes of `x[key]`; ``lies`` says how a key lies, ``size`` how large it is, ``number`` how
    the bounds of a slice lie, which may tell the size of the batch, ``numbers`` if samples hold it as numbers, and
    ``counts`` if it is the number of a sample among those of its rank; ``base`` is what the places are in."""
    keys = keys_of(key)
    sharded = placement.axis if isinstance(placement, Shard) else None
    axis, shard, counts_all, columns = 0, None, False, 1
    result: list[int | None] = []
    for place, each in enumerate(keys):
        if each.constant is None:
            result.append(1)
            continue
        if isinstance(each.constant, str):  # a column of a table
            return placement, sizes[:1] if sizes is not None and len(sizes) == 2 else None
        if each.constant is Ellipsis:
            if sizes is None:
                return (PerRank("getitem", BY_PLACE) if sharded else placement), None
            rest = sum(1 for other in keys[place + 1 :] if other.constant is not None)
            while axis < len(sizes) - rest:
                shard = len(result) if axis == sharded else shard
                result.append(sizes[axis])
                axis += 1
            continue
        if axis == sharded and isinstance(placement, Shard) and _pairs_own(keys[place:], lies):
            return replace(placement, axis=len(result), rows=_named(each)), None  # `boxes[image, query]`
        if axis == sharded and isinstance(placement, Shard) and _counts_all(each, placement.rows, lies, base):
            shard, counts_all = len(result), True
            columns = len(size(each) or (None,))
            result += [None] * columns
        if counts_all and (axis == sharded or _beside(each, columns, lies, size)):  # `out[range(len(y)), y]`
            axis += 1
            continue
        lying = lies(each) if sharded is None and (each.operations or each.things) else None
        if isinstance(lying, Each) and isinstance(placement, Replicate):  # `text[start : start + length]`
            return PerRank("getitem", AGAIN) if counts(each) else lying, None  # `weights[i]`
        if isinstance(lying, Shard) and isinstance(placement, Replicate):  # `centres[labels]`
            by, last = size(each), place == len(keys) - 1
            left = (*result, *(None for _ in by or ()), *(sizes or ())[axis + 1 :])
            return Shard(len(result) + lying.axis), left if sizes and by and last else None
        chosen = lies(each) if each.operations else None
        if isinstance(chosen, PerRank) and isinstance(placement, Replicate) and not chosen.rows:  # `queue[len(x) :]`
            return PerRank("getitem", BY_PLACE), None
        if axis == sharded and isinstance(chosen, Each) and isinstance(placement, Shard):  # `x[i]`, and not `x[i - 1]`
            if chosen.loop == PIECES:  # `x[i : i + 8]`
                return replace(placement, rows=PIECES), (None, *sizes[1:]) if sizes else None
            other = any(every.name.startswith("operator.") for every in each.operations)
            return PerRank("getitem", BY_PLACE) if other else chosen, _behind(keys[place + 1 :], sizes)
        if axis == sharded and isinstance(chosen, PerRank) and chosen.reason == SO_MANY:
            return chosen, None  # `x[torch.randperm(len(x))[:4]]`
        places = isinstance(chosen, PerRank) and chosen.rows  # of some of the rank's own
        part = _part(placement, each, number or lies) if axis == sharded and isinstance(placement, Shard) else None
        if part is not None:
            placement, shard = part, len(result)
            result.append(None)
            axis += 1
            continue
        if axis == sharded and isinstance(chosen, Shard) and numbers(each):  # `out[labels]`
            return PerRank("getitem", BY_NUMBER), None
        if axis == sharded and any(op.name == "list.repeat" for op in each.operations):  # `x[[1, 0] * n]`
            return PerRank("getitem", BY_NUMBER), None
        if axis == sharded and (isinstance(chosen, Shard) or places) and isinstance(placement, Shard):
            anew = isinstance(chosen, PerRank) and chosen.rows == placement.rows  # `x[torch.randperm(len(x))]`
            if anew and not placement.in_parts and any(op.name in MOVING for op in each.operations):
                return PerRank("getitem", BY_NUMBER), None  # `x[(torch.arange(n) + 1) % n]`
            rows: str = getattr(chosen, "rows", "")
            share = rows if rows.startswith(f"{placement.rows} // ") else _named(each)
            placement = placement if anew else replace(placement, rows=share)  # `x[randint(len(x), (len(x) // 2,))]`
        if axis == sharded and each.things and not each.operations and isinstance(placement, Shard):
            listed = lies(each)  # `x[found]`, of numbers that a condition has put into a list
            if isinstance(listed, PerRank) and not listed.rows:
                return replace(listed, operation="getitem"), None
            if isinstance(listed, Shard) and listed.rows.startswith("%"):
                placement = replace(placement, rows=listed.rows)
        kept, wrong = (
            (True, None)
            if places and axis == sharded
            else _along(placement.rows if axis == sharded and isinstance(placement, Shard) else "", each, lies, size)
        )
        if wrong == SAMPLES_BESIDE and sharded is not None and axis != sharded and lies(each) == Shard(0):
            return PerRank("getitem", wrong, blocks=PAIRS), None  # `scores[:, labels]`
        if wrong == SAMPLES_BESIDE and isinstance(placement, Partial) and isinstance(lies(each), Shard):
            return PerRank("getitem", OF_PART), None  # `sums[labels]`
        if wrong is not None and not (sharded is None and isinstance(lies(each), Replicate)):
            return PerRank("getitem", wrong), None
        if kept:
            shard = len(result) if axis == sharded else shard
            size_of = sizes[axis] if sizes is not None and axis < len(sizes) else None
            result.append(size_of if size_of == 1 and not each.things or is_whole(each) else None)
            if each.operation is not None and each.operation.name.endswith(DRAWN_NUMBERS):
                result += (size(each) or ())[1:]  # `x[torch.randint(len(x), (len(x), 3))]`
        axis += 1
    found = (*result, *sizes[axis:]) if sizes is not None else None
    if isinstance(placement, PerRank) and placement.rows and not is_whole(keys[0]):  # `randperm(n)[:4]`
        if placement.reason == AGAIN and _is_part_of_own(keys[0], lies):
            return replace(placement, rows=_share_of_own(keys[0], lies)), found
        return PerRank("getitem", SO_MANY if placement.reason == AGAIN else PLACES_LEFT_OUT), found
    if not isinstance(placement, Shard):
        return placement, found
    if placement.axis >= axis:
        shard = len(result) + placement.axis - axis
    return (replace(placement, axis=shard) if shard is not None else PerRank("getitem", BY_PLACE)), found


def _share_of_own(key: Value, lies: Callable[[Value], Placement | None]) -> str:
    """How many of a rank's numbers are taken, if they are as many of each rank's samples: `randperm(n)[: n // 2]`"""
    cut = key.operation
    start, stop = cut.inputs[:2] if cut is not None and len(cut.inputs) > 1 else (key, key)
    return counted(lies(stop)) if start.constant in (None, 0) and not start.operations else ""


def _is_part_of_own(key: Value, lies: Callable[[Value], Placement | None]) -> bool:
    """Whether it is a slice whose bounds go by how many samples a rank has, `[: len(x) // 2]`, and not one of as many
    on each rank, `[:4]`."""
    cut = key.operation
    bounds = cut.inputs[:2] if cut is not None and cut.name == "builtins.slice" else (key,)
    told = [each for each in bounds if each.operations or each.constant not in (None, 0)]
    return bool(told) and not any(lies(each) in (None, Replicate()) for each in told)


def _part(placement: Shard, key: Value, lies: Callable[[Value], Placement | None]) -> Shard | None:
    """What is left of a rank's samples by a slice of as many of them as a part of the batch has, `x[: len(x) // 2]`:
    those that one process takes, since ranks' samples take turns. Of batches behind each other it is one of them."""
    cut = key.operation
    if cut is None or cut.name != "builtins.slice" or cut.inputs[2].constant is not None or len(key.operations) > 1:
        return None
    start, stop = (_told(each, placement.rows, lies) for each in cut.inputs[:2])
    several = placement.order.removesuffix(" in turn")
    if several != placement.order and several.isdigit():
        end = int(several) if stop == "" else stop
        if not isinstance(start, int) and start or not isinstance(end, int):
            return None
        left = end - (start or 0)
        return replace(placement, order="" if left == 1 else f"{left} in turn") if 0 < left <= int(several) else None
    if placement.order or placement.in_parts or isinstance(start, int) or start is None or stop is None:
        return None
    if stop == 1 and not start:
        return placement
    part = stop or start
    return replace(placement, rows=str(part)) if (start == "") != (stop == "") and not isinstance(part, int) else None


def _told(bound: Value, rows: str, lies: Callable[[Value], Placement | None]) -> int | str | None:
    """How many times ``rows`` a bound of a slice is, or which share of it; empty for none, None for anything else."""
    if bound.constant in (None, 0) and not bound.operations:
        return ""
    count = counted(lies(bound))
    if not count and bound.operation is not None and bound.operation.name == "operator.mul":  # `2 * len(x)`
        counts = [each for each in bound.operation.inputs if counted(lies(each)) == rows]
        times = [each.constant for each in bound.operation.inputs if each not in counts]
        return times[0] if len(counts) == 1 and type(times[0]) is int else None
    return 1 if count == rows else count if count.startswith(f"{rows} // ") else None


def _along(
    at: str, key: Value, lies: Callable[[Value], Placement | None], size: Callable[[Value], Sizes]
) -> tuple[bool, str | None]:
    """Whether an axis is left by one part of a key, and why the samples are not where they were, if it is theirs, which
    ``at`` counts."""
    if key.constants and not key.operations and all(each[0] is int for each in key.constants):
        return False, BY_PLACE if at else None
    slices = [each for each in key.operations if each.name == "builtins.slice"]
    if slices and len(slices) == len(key.operations):
        bounds = tuple(each.constant for each in slices[0].inputs)
        every = bounds[::2] == WHOLE[::2] and counted(lies(slices[0].inputs[1])) == at  # `x[: len(batch)]`
        return True, BY_PLACE if at and bounds != WHOLE and not every else None
    chosen = lies(key)
    if not at:
        kept = not key.operations or size(key) != ()
        return kept, None if chosen is None or isinstance(chosen, Replicate) else SAMPLES_BESIDE
    return True, None if isinstance(chosen, Shard) and chosen.axis == 0 else BY_PLACE


def _behind(keys: list[Value], sizes: Sizes) -> Sizes:
    """The sizes of one sample, `x[i, :n]`, of which some numbers are taken; None where that is not told."""
    found: list[int | None] = []
    for size, key in zip(sizes[1:] if sizes else (), keys, strict=False):
        if key.operation is not None and key.operation.name == "builtins.slice":
            found.append(size if is_whole(key) else None)
        elif type(key.constant) is not int:
            return None
    return (*found, *sizes[1 + len(keys) :]) if sizes else None


def _named(key: Value) -> str:
    return ",".join(sorted(f"%{each.number}" for each in key.operations))


def _pairs_own(keys: list[Value], lies: Callable[[Value], Placement | None]) -> bool:
    """Whether tensors tell places side by side, the first of them numbers of samples that loops over a rank's own have
    counted: `torch.cat([torch.full_like(query, i) for i, query in enumerate(found)])`"""
    beside = [lies(each) for each in keys]
    if len(keys) < 2 or not all(isinstance(each, Shard) and not each.axis for each in beside):
        return False
    found = closure(keys[0].operations, lambda op: (e for value in _numbers_in(op) for e in held(value)))
    ends = [each for each in found if not any(held(value) for value in _numbers_in(each))]
    return bool(ends) and all(each.name == "range.index" for each in ends)


def _numbers_in(operation: Operation) -> tuple[Value, ...]:
    """From which numbers an operation has its own: `i` of `torch.full_like(labels, i)`"""
    return operation.inputs[1:] if operation.name.endswith((".full_like", ".full")) else operation.inputs


def _beside(
    key: Value, columns: int, lies: Callable[[Value], Placement | None], size: Callable[[Value], Sizes]
) -> bool:
    """Whether it tells places for each sample, beside the numbers of all samples: `out[numbers, y]`; or the same ones
    for each, where the numbers stand in a column: `out[numbers[:, None], torch.arange(3)]`"""
    cut = key.operation is not None and key.operation.name == "builtins.slice"
    alike = columns > 1 and lies(key) == Replicate() and not cut and len(size(key) or ()) == 1
    return lies(key) == Shard(0) or alike


def _as_made(key: Value) -> Value:
    """Numbers before they are brought to another place or type: `torch.arange(len(x)).to(device)`"""
    while (made := key.operation) is not None and made.name.rpartition(".")[2] in HELD and made.inputs:
        key = made.inputs[0]
    return key


def _column(key: Value) -> Value:
    """Numbers of which each is laid into a row of its own: `numbers` of `numbers[:, None]`, `numbers.unsqueeze(1)`"""
    made = key.operation
    if made is None or not made.inputs:
        return key
    name, rest = made.name.rpartition(".")[2], [each.constant for each in made.inputs[1:]]
    first, *others = keys_of(made.inputs[1]) if made.name == "getitem" else [Value()]
    turned = made.name == "getitem" and is_whole(first) and [each.constant for each in others] == [None]
    turned = turned or name == "unsqueeze" and rest in ([1], [-1]) or name in ("view", "reshape") and rest == [-1, 1]
    return made.inputs[0] if turned else key


def _counts_all(key: Value, at: str, lies: Callable[[Value], Placement | None], base: Value) -> bool:
    """Whether it tells the places of all samples that ``at`` counts, in their order: `range(len(x))`"""
    key = _column(_as_made(_column(key)))
    counting = [*held(key)]
    if not counting or any(getattr(each, "picked", EMPTY) for each in key.things):
        return False
    names = {each: ".arange" if each in key.operations else "range.index" for each in counting}
    if not all(each.name.endswith(name) for each, name in names.items()):
        return False
    begin = all(len(e.inputs) == 1 or len(e.inputs) == 2 and e.inputs[0].constant == 0 for e in counting)
    if at.startswith(SUMMED):  # a name of any multiple
        return begin and all(_is_length_of(e.inputs[-1].operation, base) for e in counting)
    return begin and all(at in (counted(lies(e.inputs[-1])), _numbers(lies(Value(frozenset([e]))))) for e in counting)


def _is_length_of(operation: Operation | None, base: Value) -> bool:
    """`len(base)`, `base.shape[0]`"""
    first = operation is not None and operation.name == "getitem" and operation.inputs[1].constant == 0
    operation = operation.inputs[0].operation if operation is not None and first else operation
    told = operation is not None and operation.name in ("builtins.len", "torch.Tensor.shape", "torch.Tensor.size")
    return told and operation is not None and operation.inputs[0].operations == base.operations


def _numbers(placement: Placement | None) -> str:
    """What the numbers count that begin again on each rank: its samples."""
    if isinstance(placement, Each):
        return placement.loop
    return placement.rows if isinstance(placement, PerRank) and placement.reason == AGAIN else ""
