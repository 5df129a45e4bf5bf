"""Where samples lie after a pattern of `einops`: `rearrange(x, "b n d -> n b d")`.

A word stands for an axis, and brackets for one that several are joined to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autodist.placement.along import NO_SUM, rows_of
from autodist.placement.call import Call
from autodist.placement.lattice import Partial, Placement, Shard
from autodist.placement.layout import GROUPED, WRITTEN

BATCH = frozenset("b B bs batch batch_size".split())
"""What the samples are called where several axes are joined, of which the first may be another one."""
REST = "..."


def pattern(call: Call) -> Placement:
    """Where the axis of the samples is moved to, what it is joined with, or what is computed along it."""
    shard, first = call.first.shard, call.first.placement
    if shard is None or not isinstance(first, Shard):
        return first
    before, after = sides(call)
    if [REST] in before and [REST] in after:
        within = shard - before.index([REST])
        if 0 <= within <= call.first.axes - len(before):  # `rearrange(x, "... d -> d ...")`
            return replace(first, axis=after.index([REST]) + within)
    at = _place(before, shard, call.first.axes)
    if at is None or not before[at]:
        return call.apart(WRITTEN)
    words = before[at]
    word = next((each for each in words if each in BATCH), words[0])
    if len(words) > 1 and not (first.in_parts or word in BATCH) or word != words[0]:
        return call.apart(GROUPED)  # `rearrange(x, "(a c) d -> a c d", c=2)`: samples in pairs
    found = next((place for place, axis in enumerate(after) if word in axis), None)
    if found is None:
        joined: Mapping[str, Placement] = {
            "mean": Partial("mean", rows_of(call)),
            "sum": Partial("sum"),
            "max": Partial("max"),
            "min": Partial("min"),
        }
        return joined.get(call.reduction, call.apart(NO_SUM))
    if after[found][0] != word or [REST] in after[:found] and ([REST] not in before or not call.first.axes):
        return call.apart(WRITTEN)
    behind = (call.first.axes - len(before)) * ([REST] in after[:found])
    return Shard(found + behind, order=first.order, rows=first.rows, in_parts=len(after[found]) > 1)


def _place(before: list[list[str]], shard: int, axes: int) -> int | None:
    """The place on the left of an axis, counted from the end behind what stands for any number of them."""
    if [REST] not in before:
        return shard if shard < len(before) else None
    rest = before.index([REST])
    if shard < rest:
        return shard
    from_end = shard - axes
    return from_end if axes and -from_end < len(before) - rest else None


def sides(call: Call) -> tuple[list[list[str]], list[list[str]]]:
    """The words of each axis, before and after: `b (h w) c` has three axes."""
    taken, _, left = call.equation.partition("->")
    return axes_of(taken), axes_of(left)


def axes_of(side: str) -> list[list[str]]:
    """The words of each axis."""
    found: list[list[str]] = []
    inside = False
    for word in side.replace("(", " ( ").replace(")", " ) ").split():
        if word in "()":
            inside = word == "("
            if inside:
                found.append([])
        elif inside:
            found[-1].append(f"({word})" if word == REST else word)
        else:
            found.append([word])
    return found
