"""Operations along an axis: fewer numbers, other ones, or in other places."""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.by_number import NONLINEAR, PAIRED, aligned, partials
from autodist.placement.call import Call, told_parts
from autodist.placement.lattice import (
    Partial,
    Placement,
    Replicate,
    Shard,
    is_even_number,
    is_linear,
    join,
    multiple,
    told,
)

OF_ALL = "it works along the axis of the samples, of which each rank has its own"
SO_MANY = "it takes as many of each rank's own samples as one process takes of all; take a share of them, len(x) // k"
PLACES_LEFT_OUT = "it takes some of the samples that were found, and each rank has found its own"
NO_SUM = "it is computed of all samples together, and is no sum, mean or extreme of the ranks' results"
BY_PLACE = "it takes samples by their places, and each rank counts its own"
BY_NUMBER = "numbers that samples hold tell which of them it takes, and each rank takes these among its own"
OF_PART = "it gives samples numbers that are each rank's part of a sum or mean"
SAMPLES_BESIDE = "what tells it which numbers to take is each rank's own"


def reduction(call: Call) -> Placement:
    """One number of all along an axis: each rank's part of it, if that is the samples' axis."""
    kind = str(call.parameters.get("kind", "none"))
    if partials(call):
        return reduced_part(call, kind)
    found = aligned(call)
    if not isinstance(found, Shard):
        return found
    over = call.axes()
    if found.axis not in over:
        return found if call.keepdim else Shard(found.axis - sum(each < found.axis for each in over))
    return reduced(call, kind)


def reduced(call: Call, kind: str) -> Placement:
    """One number of all samples: each rank's part of it, if these are joined to that of all."""
    if kind == "mean":
        return Partial("mean", rows_of(call))
    if kind in ("sum", "max", "min"):
        return Partial(kind)  # type: ignore[arg-type]
    return call.apart(NO_SUM)


def rows_of(call: Call) -> str:
    """The number that counts the entries along the sharded axis: of which ranks have more or fewer, if any says so."""
    found = [each.placement.rows for each in call.operands if isinstance(each.placement, Shard)]
    return next((each for each in found if not is_even_number(each)), next(iter(found), call.first.rows))


def reduced_part(call: Call, kind: str) -> Placement:
    """One number of several of which each is a rank's part."""
    part = partials(call)[0]
    if is_linear(part) and kind in ("sum", "mean"):
        return multiple(part)
    if part.reduce == kind and len(call.operands) == 1:
        return part
    return call.apart(f"it is taken of {told(part)}: {NONLINEAR}")


def scan(call: Call) -> Placement:
    """Each number from all along an axis, or in another place of it."""
    if partials(call):
        return call.apart(NONLINEAR)
    found = aligned(call)
    return call.apart(OF_ALL) if isinstance(found, Shard) and found.axis in call.axes() else found


def index(call: Call) -> Placement:
    """Some numbers along an axis, by their places, which those of a batch may tell: `torch.index_select(x, 0, y)`."""
    if call.first.placement == Replicate() and [each.placement for each in call.operands[1:]] == [Shard(0)]:
        told = call.axis if isinstance(call.axis, int) else -1
        return Shard(told if told >= 0 else call.axes()[0])
    along = call.first.shard in call.axes()
    if any(not isinstance(each.placement, Replicate) for each in call.operands[1:]):
        return call.apart(BY_NUMBER if along and call.numbers else SAMPLES_BESIDE)
    return call.apart(BY_PLACE) if along else call.first.placement


def gather(call: Call) -> Placement:
    """Numbers along an axis, at places that a tensor tells. Those of samples along it take what all ranks have."""
    if call.parameters.get("puts") or call.axis is None:
        return scatter(call)
    axes = max(each.axes for each in call.operands)  # the table has as many as the places
    table, *places = (each if each.axes else replace(each, sizes=(None,) * axes) for each in call.operands)
    call = replace(call, operands=(table, *places))
    if table.placement == Replicate() and [each.shard for each in places] == [*call.axes()]:
        return places[0].placement
    return scatter(call)


def scatter(call: Call) -> Placement:
    """Numbers that are put along an axis, at places that a tensor tells."""
    found = aligned(call)
    if partials(call):
        return call.apart(NONLINEAR)
    if not isinstance(found, Shard) or found.axis not in call.axes():
        return found
    return call.apart(BY_NUMBER if call.numbers else BY_PLACE)


def select(call: Call) -> Placement:
    """One entry along an axis, which is gone."""
    shard, (over, *_) = call.first.shard, call.axes()
    if shard == over:
        return call.apart(BY_PLACE)
    return call.first.placement if shard is None else Shard(shard - (over < shard))


def repeat_each(call: Call) -> Placement:
    """Each entry several times: the samples stay in order, unless each is there as often as a rank has samples."""
    if call.first.shard is not None and partials(call):
        return call.apart(PAIRED)
    one = call.first.axes == 1 or call.axis is not None
    if isinstance(call.first.placement, Shard) and call.axis is not None and call.first.shard in call.axes():
        return replace(call.first.placement, parts=told_parts([call.first.placement.parts, *call.sizes[:1]]))
    return call.first.placement if one or call.first.shard in (0, None) else call.apart(OF_ALL)


def filtered(call: Call) -> Placement:
    """What a mask marks, in the order of the samples."""
    found = aligned(call)
    if isinstance(found, Shard) and found.axis:
        return call.apart("what is marked comes in the order of the first axis, along which no rank has its own")
    if partials(call):
        return call.apart(SAMPLES_BESIDE)
    return Shard(0, rows=call.operands[-1].name or "what is marked") if isinstance(found, Shard) else found


def places(call: Call) -> Placement:
    """The places of what is not zero: each rank counts its own, and together they are as many as those of all."""
    found = aligned(call)
    if partials(call) or not isinstance(found, Shard):
        return call.apart(SAMPLES_BESIDE) if partials(call) else found
    return replace(call.apart(BY_PLACE), rows=call.first.name or "what is not zero")


def histogram(call: Call) -> Placement:
    """How often numbers occur: the ranks' numbers add up, if all count the same ones."""
    found = aligned(call)
    if partials(call) or not isinstance(found, Shard):
        return call.apart(NONLINEAR) if partials(call) else found
    return Partial("sum") if call.is_told else call.apart("it depends on the numbers which of them are counted")


def concatenate(call: Call) -> Placement:
    """Tensors behind each other."""
    (over,) = call.axes()
    found = _alike(call)
    if isinstance(found, Shard) and (found.axis == over or call.number("default") and call.first.axes < 2):
        # each rank's samples of one behind its own of another
        return Shard(found.axis, order=f"{len(call.operands)} in turn" if len(call.operands) > 1 else "batches in turn")
    return found


def stack(call: Call) -> Placement:
    """Tensors along a new axis."""
    told_axis = call.axis if isinstance(call.axis, int) else call.number("default") or 0
    over = told_axis % (call.first.axes + 1)
    found = _alike(call)
    return Shard(found.axis + (over <= found.axis)) if isinstance(found, Shard) else found


def _alike(call: Call) -> Placement:
    if len({each.shard for each in call.operands} - {None}) > 1:
        return call.paired(PAIRED)
    found = call.first.placement
    for each in call.operands[1:]:
        found = join(found, each.placement)
    return found
