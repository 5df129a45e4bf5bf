"""Operations that give the same numbers other axes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction
from math import prod

from autodist.placement.along import OF_ALL, rows_of
from autodist.placement.call import OTHER_SIZE, Call, told_parts
from autodist.placement.lattice import Placement, Shard, share

FIRST = " axes first"
"""Ends the name of an order in which other axes come before the samples'."""
OF_WHOLE = "it is told how many samples all ranks have, and is given those of one"
GROUPED = "it lays several samples of a rank into each row, or parts of them"
ANOTHER = "it gives another axis as many places as there are samples, and cuts through these: transpose them"
WRITTEN = "it writes down the size of the whole batch, or lays samples of different ranks beside each other"


def permute(call: Call) -> Placement:
    """All axes in another order: reversed, if none is told."""
    shard, axes = call.first.shard, call.first.axes
    order = [each % axes for each in call.named()] or list(range(axes))[::-1]
    if shard is not None and shard not in order:
        return call.apart("it names other axes than its operand has")
    return call.first.placement if shard is None else Shard(order.index(shard))


def transpose(call: Call) -> Placement:
    """Two axes exchanged; all of them in another order, where they are named as NumPy does: `x.transpose(1, 0, 2)`."""
    shard, axes = call.first.shard, call.first.axes
    if len(call.named()) not in (0, 2):
        return permute(call)
    one, other = (each % axes for each in call.named() or (call.number("first") or 0, call.number("second") or 0))
    return call.first.placement if shard is None else Shard({one: other, other: one}.get(shard, shard))


def movedim(call: Call) -> Placement:
    """One axis in another place."""
    shard, axes = call.first.shard, call.first.axes
    source, target = (each % axes for each in call.named())
    order = [each for each in range(axes) if each != source]
    order.insert(target, source)
    return call.first.placement if shard is None else Shard(order.index(shard))


def view(call: Call) -> Placement:
    """Other sizes: one of -1 can be the axis of the samples, if as many numbers come before it as did."""
    shard = call.first.shard
    if shard is None:
        return call.first.placement
    before = call.first.sizes[:shard]
    first = call.first.placement
    behind = isinstance(first, Shard) and not first.axis
    made = _made_of_each(call) if behind and call.sizes[:1] in ((-1,), (None,)) else None
    if (
        behind
        and not getattr(first, "in_parts", False)
        and None not in call.sizes
        and -1 not in call.sizes
        and OTHER_SIZE not in call.sizes
    ):
        if None not in call.first.sizes[1:] and len(call.sizes) > call.first.axes:
            return call.apart(GROUPED)  # `out.view(4, 2, 3)` of eight samples
    if made is not None and (made.denominator == 1 or call.sizes[0] == -1):  # else the first size is some other number
        return Shard(0, parts=made.numerator) if made.denominator == 1 else call.apart(GROUPED)
    for at, size in enumerate(call.sizes):
        if size in (-1, None):
            fits = None not in before and prod(each or 0 for each in before) == prod(s or 0 for s in call.sizes[:at])
            behind_it = call.first.sizes[shard + 1 :], call.sizes[at + 1 :]  # `x.view(x.shape[0], x.shape[1], 1)`
            told = size is None and not {None, -1, OTHER_SIZE} & {*behind_it[0], *behind_it[1]}
            fits = fits or told and prod(e or 0 for e in behind_it[0]) == prod(e or 0 for e in behind_it[1])
            merged = call.first.axes - shard > len(call.sizes) - at
            parts = call.sizes[0]
            if (
                not fits
                and at == 1
                and not shard
                and isinstance(parts, int)
                and parts < OTHER_SIZE
                and call.first.sizes[1:] == call.sizes[2:]
            ):
                return Shard(1, rows=share(rows_of(call), parts))  # ranks' samples take turns
            if not fits and at == shard == 1 and len(call.sizes) == 2 and before == (None,) * len(before):
                return Shard(1, parts=0 if merged else 1)  # `scores.transpose(0, 1).reshape(classes, -1)`
            return Shard(at, parts=0 if merged else 1) if fits else _behind_others(call, at, len(call.sizes) - 1)
    return call.apart(WRITTEN)


def parted(placement: Shard, sizes: Collection[int | None]) -> Shard | None:
    """The axis of samples that are in parts, where these become axes of such sizes: `unflatten(0, (-1, 6))`. None if
    that lays several samples beside each other, or parts of them."""
    number, told = told_parts(sizes), None not in sizes
    if not number or not placement.parts:  # which would be one, if there is one part of each sample
        return None if told and placement.parts == 1 else placement
    return None if placement.parts % number else replace(placement, parts=placement.parts // number)


def _made_of_each(call: Call) -> Fraction | None:
    """How many rows are made of each sample, if it is known how many numbers both have: a half of `x.view(-1, 16)`, of
    samples of eight numbers."""
    each, row = call.first.sizes[1:], call.sizes[1:]
    numbers, of_row = (prod(n or 0 for n in sizes) for sizes in (each, row))
    numbers *= getattr(call.first.placement, "parts", 1)
    return Fraction(numbers, of_row) if numbers and of_row > 0 and OTHER_SIZE not in (*each, *row) else None


def _behind_others(call: Call, at: int, kept: int) -> Placement:
    """Where the first axes become one, the samples' axis the last of them or not: `scores.view(-1, classes)`, with time
    first. The samples of a moment stand behind those of the one before."""
    shard = call.first.shard
    if at and shard == 0 and call.sizes[at] is None:
        return call.apart(ANOTHER)
    if at or shard is None or call.first.axes - kept <= shard:
        return call.apart(WRITTEN)
    return Shard(0, order=f"{shard}{FIRST}")


def laid_apart(call: Call) -> Placement | None:
    """Where the axes come back that had become one with the samples' axis the last of them: `losses.view(length, n)`"""
    placement = call.first.placement
    before = placement.order.removesuffix(FIRST) if isinstance(placement, Shard) else ""
    if not before.isdigit() or not isinstance(placement, Shard) or placement.order == before or placement.axis:
        return None
    at = int(before)
    told = call.sizes[:at]
    fits = len(call.sizes) > at and call.sizes[at] in (None, -1) and all(each not in (None, -1) for each in told)
    return Shard(at) if fits else None


def view_as(call: Call) -> Placement:
    """The sizes of another tensor: both have their samples first, or none has any."""
    one, other = (each.placement for each in call.operands)
    return one if one == other and call.first.shard in (0, None) else call.apart(WRITTEN)


def flatten(call: Call) -> Placement:
    """One axis of several: of all, if none is told."""
    shard, axes = call.first.shard, call.first.axes
    start, end = (each % axes for each in (*call.named(), 0, -1)[:: 1 if len(call.named()) != 1 else 2][:2])
    if shard is not None and shard == start:
        return Shard(
            shard, parts=told_parts([getattr(call.first.placement, "parts", 1), *call.first.sizes[start + 1 : end + 1]])
        )
    if shard is None or shard < start:
        return call.first.placement
    if shard <= end:
        return call.apart(OF_ALL) if start else _behind_others(call, start, axes - 1 - end)
    return Shard(shard - (end - start))


def unflatten(call: Call) -> Placement:
    """Several axes of one."""
    shard, (at,), first = call.first.shard, call.axes(), call.first.placement
    if isinstance(first, Shard) and shard == at and call.sizes[0] == -1:
        left = parted(first, call.sizes[1:])
        return call.apart(GROUPED) if left is None else left
    if shard is None or shard < at:
        return first
    return Shard(shard + len(call.sizes) - 1) if shard > at else call.apart(WRITTEN)


def squeeze(call: Call) -> Placement:
    """Without axes of size one: without all of them, if none is told."""
    shard = call.first.shard
    if shard is None:
        return call.first.placement
    return Shard(shard - sum(each < shard for each in squeezed(call)))


def squeezed(call: Call) -> set[int]:
    """The axes that go: those of size one, and those that are named and may be so."""
    sizes = (1,) if call.axis is None else (1, None)
    return {each for each in call.axes() if call.first.sizes[each] in sizes}


def unsqueeze(call: Call) -> Placement:
    """With a new axis of size one."""
    shard, (at,) = call.first.shard, call.named()
    return call.first.placement if shard is None else Shard(shard + (at % (call.first.axes + 1) <= shard))


def expand(call: Call) -> Placement:
    """Repeated along new axes and those of size one."""
    return _repeated(call, -1, None)


def repeat(call: Call) -> Placement:
    """The whole, several times along axes."""
    return _repeated(call, 1)


def _repeated(call: Call, *as_it_is: int | None) -> Placement:
    shard = call.first.shard
    if shard is None:
        return call.first.placement
    place = shard + len(call.sizes) - call.first.axes
    return Shard(place) if call.sizes[place] in as_it_is else call.apart(WRITTEN)
