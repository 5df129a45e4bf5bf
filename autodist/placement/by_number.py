"""Operations that compute each number from those in the same place, of operands that are broadcast."""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.call import OTHER_SIZE, Call
from autodist.placement.lattice import (
    SUMMED,
    Partial,
    Placement,
    Replicate,
    Shard,
    counted,
    is_linear,
    join,
    multiple,
    told,
)

PAIRED = "operands are sharded along different axes: each rank's samples meet its own others, not those of all ranks"
WHOLE = "a replicated operand has all samples where another has a rank's"
AS_MANY = "an operand has as many numbers as a whole batch has samples, and each rank has its own"
ADDED = "it adds what is reduced over ranks in different ways; what is replicated would be counted N times"
MIXED = "samples meet a number that is each rank's own"
OWN_NUMBER = "it divides by a number that is each rank's own"
PRODUCT = "it multiplies two numbers that are each rank's own"
NONLINEAR = "it is not linear, so that it says nothing of the reduced value"


def aligned(call: Call) -> Placement:
    """Where the samples of operands lie that are broadcast: the last axes stand beside each other."""
    axes = max((each.axes for each in call.operands), default=0)
    places = {each.shard + axes - each.axes for each in call.operands if each.shard is not None}
    if not places:
        return Replicate()
    if len(places) > 1:
        return call.paired(PAIRED)
    (place,) = places
    for each in call.operands:
        at = place - axes + each.axes
        if each.shard is None and at >= 0 and each.sizes[at] != 1:
            return call.apart(WHOLE if each.sizes[at] in (None, OTHER_SIZE) else AS_MANY)
    return Shard(place)


def partials(call: Call) -> list[Partial]:
    """The operands that are each rank's part of a number."""
    return [each.placement for each in call.operands if isinstance(each.placement, Partial)]


def same(call: Call) -> Placement:
    """The same numbers, as a tensor of other samples where it has any: `x.copy_(y)`"""
    return aligned(call) if len(call.operands) > 1 and call.parameters else call.first.placement


def linear(call: Call) -> Placement:
    """A linear function of one number."""
    found = call.first.placement
    if isinstance(found, Partial):
        return multiple(found) if is_linear(found) else _not(call)
    return found


def elementwise(call: Call) -> Placement:
    """Any function of the numbers in one place. Two numbers of the same samples compare alike on all ranks."""
    counts = {counted(each.placement) for each in call.operands}
    if call.parameters.get("compares") and len(counts) == 1 and "" not in counts:
        return Replicate()
    return _not(call) if partials(call) else aligned(call)


def _not(call: Call) -> Placement:
    found = partials(call)[0]
    return call.apart(f"{told(found)} is no sum or mean" if not is_linear(found) else NONLINEAR)


def add(call: Call) -> Placement:
    """Sums over ranks add up, and means of the same weight; what is replicated may be added to a mean alone."""
    found = partials(call)
    if not found:
        return aligned(call)
    if any(each.shard is not None for each in call.operands):
        return call.apart(MIXED)
    result: Placement = found[0]
    for each in call.operands:
        result = join(result, each.placement)
    all_sums = len(found) == len(call.operands) and all(each.reduce == "sum" for each in found)
    counts = {each.weight.removeprefix(SUMMED) for each in found}
    if all_sums and len(counts) == len({each.exponent for each in found}) == 1 and "" not in counts:
        return replace(found[0], weight=SUMMED + counts.pop())  # numbers of samples, of several batches
    if not is_linear(result):
        return call.apart(ADDED)
    return linear(replace(call, operands=(replace(call.first, placement=result),)))


def multiply(call: Call) -> Placement:
    """A sum or mean over ranks times what is replicated; a mean times its weight is a sum."""
    found = partials(call)
    if not found:
        return aligned(call)
    if any(each.shard is not None for each in call.operands):
        return call.apart(MIXED)
    if len(found) == 1:
        return multiple(found[0]) if is_linear(found[0]) else _not(call)
    mean, weight = sorted(found, key=lambda each: each.reduce)[:2]
    if (mean.reduce, weight.reduce) == ("mean", "sum") and mean.weight and mean.weight == weight.weight:
        return Partial("sum")
    return call.apart(PRODUCT)


def divide(call: Call) -> Placement:
    """A sum or mean over ranks by what is replicated; a sum by how many it is over is a mean."""
    found = partials(call)
    if not found:
        return aligned(call)
    above, below = (each.placement for each in call.operands)
    if isinstance(below, Replicate):
        return multiply(call)
    if isinstance(above, Partial) and isinstance(below, Partial):
        if (above.reduce, below.reduce) == ("sum", "sum"):
            return Partial("mean", below.weight or call.operands[1].name or "what it is divided by")
    apart, count = call.apart(OWN_NUMBER), counted(below)
    if isinstance(above, Shard) and above.rows == count:
        return replace(apart, over=count, rows=count)  # which adds up to a mean
    return replace(apart, over=count) if isinstance(above, Replicate) else apart
