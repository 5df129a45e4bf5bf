"""Numbers of samples, tensors made to measure, draws, and what depends on no data."""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.along import rows_of
from autodist.placement.by_number import NONLINEAR, partials
from autodist.placement.call import ROWS, Call
from autodist.placement.lattice import Partial, Placement, Replicate, Shard, counted, is_multiple, join

NO_NUMBER = "it has a size that differs over the ranks, and is no number of their samples"
OF_ALL_NUMBERS = "it is computed of all samples together, and nothing joins the ranks' results"
AGAIN = "it begins again on each rank, with a number for each of the rank's own samples"
OF_SIZES = "among the sizes is the number of each rank's own samples"


def length(call: Call) -> Placement:
    """The size of an axis, or how many numbers there are: of the samples, each rank's number of them."""
    shard = call.first.shard
    everything = bool(call.parameters.get("all"))
    if shard is None:
        return Replicate()
    if everything:
        return Partial("sum", rows_of(call) if call.first.axes == 1 else "")
    if call.axis is None and call.number("default") is None:
        return call.apart(OF_SIZES)
    return Partial("sum", rows_of(call)) if shard in call.axes() else Replicate()


def fact(call: Call) -> Placement:
    """What depends on no data."""
    return Replicate()


def fill(call: Call) -> Placement:
    """A tensor of the sizes that it is given: of those of a rank's samples, a shard."""
    sized = [at for at, each in enumerate(call.operands) if not _is_alike(each.placement, at)]
    if not sized:
        return Replicate()
    size = call.operands[sized[0]].placement
    if len(sized) == 1 and is_multiple(size) and isinstance(size, Partial):  # `torch.randn(4 * len(x))`
        return Shard(sized[0], rows=size.weight, parts=0)
    return Shard(sized[0], rows=rows) if len(sized) == 1 and (rows := _counts(size)) else call.apart(NO_NUMBER)


def _is_alike(placement: Placement, at: int) -> bool:
    """Whether it is a size that ranks have alike, or, behind the first, that of their own longest sample."""
    return placement == Replicate() or at > 0 and isinstance(placement, Partial) and placement.reduce == "max"


def _counts(placement: Placement) -> str:
    """What it counts of each rank's own samples: the number of equal shares is the N-th part of the whole."""
    return ROWS if placement == Replicate(-1) else counted(placement)


def fill_like(call: Call) -> Placement:
    """A tensor as large as another."""
    return Shard(call.first.shard) if call.first.shard is not None else Replicate()


def arange(call: Call) -> Placement:
    """Numbers that count up, or an order that is drawn: of a rank's samples, one for each."""
    apart = [each.placement for each in call.operands if each.placement != Replicate()]
    if not apart:
        return Replicate()
    return replace(call.apart(AGAIN), rows=counted(apart[0]) if len(call.operands) == 1 else "")


def random_like(call: Call) -> Placement:
    """A draw for each number: other draws for other samples, the same ones for what is replicated."""
    return call.apart(NONLINEAR) if partials(call) else call.first.placement


def container(call: Call) -> Placement:
    """What holds values, each as it lies."""
    found = call.first.placement
    for each in call.operands[1:]:
        found = join(found, each.placement)
    return found


def whole(call: Call) -> Placement:
    """What is computed of all numbers."""
    if call.parameters.get("picks") and isinstance(call.first.placement, Partial):
        return call.first.placement
    if all(each.placement == Replicate() for each in call.operands):
        return Replicate()
    return call.apart(OF_ALL_NUMBERS)
