"""Layers and losses: what is made of each sample, and of all of a batch."""

from __future__ import annotations

from dataclasses import replace

from autodist.placement.along import OF_ALL, rows_of
from autodist.placement.by_number import NONLINEAR, aligned, partials
from autodist.placement.call import Call
from autodist.placement.lattice import EITHER, Partial, Placement, Replicate, Shard

COUNTING = "what counts of "
"""Begins the name of what labels weigh that have weights, or of how many are not left out."""
OF_TIME = "it takes the axis of the samples for time, from one to the next: tell it by batch_first which axis that is"
BESIDE = "some operands have the samples of a rank, and others have not"


NORMALISED = "it normalises by the mean and variance of each rank's samples"


def _shards(call: Call, count: int) -> Placement:
    """The common placement of the first operands, of which the others are weights."""
    placements = {each.placement for each in call.operands[:count]}
    if partials(call):
        return call.apart(NONLINEAR)
    beside = {each.placement for each in call.operands[count:]} - {Replicate()}
    masks = call.parameters.get("masked") and beside == placements and call.operands[-1].axes == call.first.axes
    if len(placements) > 1 or beside and not masks:
        return call.apart(BESIDE)
    return call.first.placement


def per_sample(call: Call) -> Placement:
    """Each sample apart: those axes stay that are not among the last ones, which are mixed."""
    found = _shards(call, call.number("samples") or 1)
    mixes = call.number("mixes")
    apart = 1 if mixes is None else call.first.axes - mixes
    if call.mixed is not None:
        apart = min(range(call.first.axes)[call.mixed], default=call.first.axes)
    return found if not isinstance(found, Shard) or found.axis < apart else call.apart(OF_ALL)


def decomposition(call: Call) -> Placement:
    """Each matrix apart: the last two axes are its own."""
    found = _shards(call, 1)
    return call.apart(OF_ALL) if isinstance(found, Shard) and found.axis >= call.first.axes - 2 else found


def sequence(call: Call) -> Placement:
    """Each sequence of a batch apart: time comes first, if it is not told otherwise."""
    found = _shards(call, len(call.operands))
    batch = 0 if call.batch_first else 1
    one = call.first.axes < 3
    return call.apart(OF_TIME) if isinstance(found, Shard) and (one or found.axis != batch) else found


def batch_statistic(call: Call) -> Placement:
    """Mean and variance of each channel, over the batch while training."""
    found = _shards(call, 1)
    if isinstance(found, Shard) and found.axis == 1:
        return call.apart("it has a mean and variance for each of that axis")
    if isinstance(found, Shard) and call.training:
        return call.apart(NORMALISED)
    return found


def loss(call: Call) -> Placement:
    """Two tensors compared number by number."""
    if partials(call):
        return call.apart(NONLINEAR)
    found = aligned(_of_one_size(call) if call.parameters.get("alike") else call)
    return _reduced(call, found) if isinstance(found, Shard) else found


def _of_one_size(call: Call) -> Call:
    """The first two operands with as many axes each: of other sizes the loss takes none, so that it stops there and
    pairs no samples."""
    both, axes = call.operands[:2], max(each.axes for each in call.operands[:2])
    padded = (replace(each, sizes=each.sizes + (None,) * (axes - each.axes)) for each in both)
    return replace(call, operands=(*padded, *call.operands[2:]))


def sample_loss(call: Call) -> Placement:
    """One loss for each sample."""
    if partials(call):
        return call.apart(NONLINEAR)
    shards = [each.shard for each in call.operands]
    if shards == [None] * len(shards):
        return Replicate()
    if shards != [call.number("batch") or 0, *[0] * (len(shards) - 1)]:
        return call.apart(BESIDE)
    return _reduced(call, Shard(0))


def _reduced(call: Call, each: Shard) -> Placement:
    if call.reduction == "none":
        return each
    if not call.reduction:
        return call.apart(EITHER)
    if call.reduction == "sum":
        return Partial("sum")
    if call.reduction == "batchmean" and each.axis:
        return Partial("sum")  # which is divided by the size of the first axis
    rows = rows_of(call)
    return Partial("mean", COUNTING + rows if call.leaves_out else rows)
