"""Where samples lie after a pattern of `einops`: `rearrange(x, "b n d -> n b d")`.

A word stands for an axis, and brackets for one that several are joined to.
"""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.along import reduced, reduced_part
from autodist.placement.by_number import partials
from autodist.placement.call import Call, told_parts
from autodist.placement.lattice import Placement, Shard
from autodist.placement.layout import GROUPED, WRITTEN, parted

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
    lengths = _lengths(call, before)
    told = [lengths.get(each) for each in words[1:]]
    laid = parted(first, told) if word == words[0] and (first.in_parts or None not in told) else None
    if laid is None:
        return call.apart(GROUPED)  # `rearrange(x, "(b c) d -> b c d", c=2)`: samples in pairs
    found = next((place for place, axis in enumerate(after) if word in axis), None)
    if found is None:
        return reduced(call, call.reduction if reduces else "none")
    if after[found][0] != word or [REST] in after[:found] and ([REST] not in before or not call.first.axes):
        return call.apart(WRITTEN)
    behind = (call.first.axes - len(before)) * ([REST] in after[:found])
    parts = told_parts([laid.parts, *(lengths.get(each) for each in after[found][1:])])
    return replace(first, axis=found + behind, parts=parts)


def _lengths(call: Call, before: list[list[str]]) -> dict[str, int | None]:
    """How long axes are, by their words: as they are told, or as those of the operand are."""
    single = [axis[0] if len(axis) == 1 else "" for axis in before]
    known = zip(single, call.first.sizes, strict=False) if [REST] not in before else ()
    return {**dict(known), **call.words}


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
