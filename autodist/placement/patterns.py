"""Where samples lie after a pattern of `einops`: `rearrange(x, "b n d -> n b d")`.

A word stands for an axis, and brackets for one that several are joined to.
"""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.along import reduced, reduced_part
from autodist.placement.by_number import partials
from autodist.placement.call import Call
from autodist.placement.lattice import Placement, Shard
from autodist.placement.layout import GROUPED, WRITTEN

BATCH = frozenset("b B bs batch batch_size".split())
"""What the samples are called where several axes are joined, of which the first may be another one."""
REST = "..."


def pattern(call: Call) -> Placement:
    """Where the axis of the samples is moved to, what it is joined with, or what is computed along it."""
    shard, first = call.first.shard, call.first.placement
    reduces = call.operation.endswith(("reduce", "Reduce"))
    if reduces and partials(call):
        return reduced_part(call, call.reduction)
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
    if len(words) > 1 and not first.in_parts or word != words[0]:
        return call.apart(GROUPED)  # `rearrange(x, "(b c) d -> b c d", c=2)`: samples in pairs
    found = next((place for place, axis in enumerate(after) if word in axis), None)
    if found is None:
        return reduced(call, call.reduction if reduces else "none")
    if after[found][0] != word or [REST] in after[:found] and ([REST] not in before or not call.first.axes):
        return call.apart(WRITTEN)
    behind = (call.first.axes - len(before)) * ([REST] in after[:found])
    return replace(first, axis=found + behind, in_parts=len(after[found]) > 1)


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
