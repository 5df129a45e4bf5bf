"""From the placements of what an operation is given to that of what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autodist.operations import Operation
from autodist.placement import along, between_ranks, by_number, layout, patterns, products, samples, sizes
from autodist.placement.call import Call, Operand
from autodist.placement.lattice import (
    PARTS,
    PIECES,
    Each,
    Partial,
    PerRank,
    Placement,
    Replicate,
    Shard,
    counted,
    is_paired,
    piecewise,
    times,
)

FUNCTIONS: Mapping[str, Callable[[Call], Placement]] = {
    "same": by_number.same,
    "linear": by_number.linear,
    "elementwise": by_number.elementwise,
    "add": by_number.add,
    "multiply": by_number.multiply,
    "divide": by_number.divide,
    "reduction": along.reduction,
    "comparison": along.reduction,
    "scan": along.scan,
    "sort": along.scan,
    "index": along.index,
    "gather": along.gather,
    "select": along.select,
    "repeat_each": along.repeat_each,
    "filter": along.filtered,
    "places": along.places,
    "histogram": along.histogram,
    "scatter": along.scatter,
    "concatenate": along.concatenate,
    "stack": along.stack,
    "contraction": products.contraction,
    "pairwise": products.pairwise,
    "permute": layout.permute,
    "transpose": layout.transpose,
    "movedim": layout.movedim,
    "view": layout.view,
    "view_as": layout.view_as,
    "flatten": layout.flatten,
    "unflatten": layout.unflatten,
    "squeeze": layout.squeeze,
    "unsqueeze": layout.unsqueeze,
    "expand": layout.expand,
    "repeat": layout.repeat,
    "pattern": patterns.pattern,
    "per_sample": samples.per_sample,
    "decomposition": samples.decomposition,
    "sequence": samples.sequence,
    "batch_statistic": samples.batch_statistic,
    "loss": samples.loss,
    "sample_loss": samples.sample_loss,
    "collective": between_ranks.collective,
    "rank": between_ranks.rank,
    "table": sizes.whole,
    "length": sizes.length,
    "fact": sizes.fact,
    "fill": sizes.fill,
    "fill_like": sizes.fill_like,
    "arange": sizes.arange,
    "random": sizes.fill,
    "random_like": sizes.random_like,
    "container": sizes.container,
    "whole": sizes.whole,
}
"""One for each class of operations."""

BETWEEN = frozenset(["collective", "rank"])
SIZES = frozenset("length fact fill fill_like arange random".split())
"""What does not depend on the numbers that it is given, or takes them for sizes."""
KEEPING = frozenset(
    "same linear add index select repeat_each filter concatenate stack permute transpose movedim view view_as flatten "
    "unflatten squeeze unsqueeze expand repeat container".split()
)
"""What gives K times as much of what is K times as large."""


def transfer(operation: Operation, call: Call) -> Placement:
    """The placement of a result."""
    call = replace(call, operation=operation.name, parameters=operation.parameters)
    if operation.cls in BETWEEN:
        return FUNCTIONS[operation.cls](call)
    mixed = next((each.placement for each in call.operands if isinstance(each.placement, PerRank)), None)
    if mixed is not None and operation.cls == "length" and mixed.rows:
        return Partial("sum", mixed.rows)
    if mixed is not None and operation.cls == "multiply" and mixed.over:
        others = [each.placement for each in call.operands if each.placement != mixed]
        if others in ([Partial("sum")], [Partial("sum", mixed.over)]):
            return Partial("mean", mixed.over)
        if others == [Replicate()]:
            return mixed
        if others == [Shard(0, rows=mixed.over)]:  # each sample divided by how many there are
            return replace(mixed, rows=mixed.over)
    if mixed is not None and mixed.over and operation.short in ("dot", "vdot", "inner"):
        if [each.placement for each in call.operands if each.placement != mixed] == [Shard(0, rows=mixed.over)]:
            return Partial("mean", mixed.over)
    if operation.parameters.get("anew") and call.first.shard is None:
        return Replicate()
    if mixed is not None and mixed.over and mixed.rows and operation.cls == "reduction" and operation.kind == "sum":
        return Partial("mean", mixed.over) if call.axis in (None, 0) else mixed
    if mixed is not None and operation.cls != "fact":
        rest = [each.placement for each in call.operands]
        rest = rest[:1] if operation.cls == "view" or operation.short == "split" else rest
        keeps = operation.cls in PAIRWISE or operation.short == "split"
        pairs = keeps and all(isinstance(each, Replicate) or is_paired(each) for each in rest)
        mixed = mixed if operation.cls in DIVIDED else replace(mixed, over="")
        return mixed if pairs else replace(mixed, blocks="")
    if any(isinstance(each.placement, Each) for each in call.operands):
        return _of_each(operation, call)
    orders = {each.placement.order for each in call.operands if isinstance(each.placement, Shard)}
    if operation.cls == "view" and (apart := layout.laid_apart(call)) is not None:
        return apart
    if len(orders) > 1:
        by_all = any(order.startswith("builtins.") for order in orders)
        return call.apart(ORDERED if by_all else "operands have the samples in different orders")
    if orders - {""}:
        call = replace(call, operands=tuple(_in_order(each) for each in call.operands))
    result = _result(operation, call)
    parts = {each.placement.parts for each in call.operands if isinstance(each.placement, Shard)} - {1}
    if parts and isinstance(result, Shard) and not (result.in_parts or operation.cls in PARTING):
        result = replace(result, parts=parts.pop() if len(parts) == 1 else 0)
    if isinstance(result, Shard) and orders:
        rows = along.rows_of(call)
        return replace(
            result, order="".join({*orders, result.order}), rows=rows if result.rows == "rows" else result.rows
        )
    if isinstance(result, PerRank) and result.operation == "join":
        return call.apart(result.reason)
    pieces = any(isinstance(each.placement, Shard) and each.placement.rows == PIECES for each in call.operands)
    return piecewise(result) if pieces else result


PARTING = ("view", "unflatten", "pattern")
"""Classes of operations that may put the parts of samples together again."""
ORDERED = "what is where in it, all samples together tell"
OF_OTHERS = "one sample meets what is computed of others"
PAIRWISE = frozenset("same linear elementwise add multiply divide view".split())
"""Classes of operations that leave the samples where they are that have been combined with each other."""
DIVIDED = frozenset("same linear add divide reduction view flatten squeeze unsqueeze container".split())
"""Classes of operations that a number may be given to which one sample is divided by."""
SCALES = "it computes with a number that scales with the number of ranks, and is not proportional to it"


def _of_each(operation: Operation, call: Call) -> Placement:
    """Whatever is computed of one sample alone, and of what all ranks have alike, is that sample's."""
    samples = [each.placement for each in call.operands if isinstance(each.placement, Each)]
    if operation.cls == "divide" and len(call.operands) == 2 and len(samples) == 1 and not samples[0].over:
        above, below = (each.placement for each in call.operands)
        if above is samples[0] and (count := counted(below)):
            return replace(above, over=count)
    overs = [each.over for each in samples if each.over]
    scaled = operation.cls == "multiply" and len(overs) == 1
    if overs and not scaled and (operation.cls not in DIVIDED or len(set(samples)) > 1):
        return call.apart("one sample is divided by how many each rank has of its own")
    if any(each.loop == PIECES for each in samples) and operation.cls not in DIVIDED | {"multiply"}:
        return call.apart("the pieces of a rank have other samples than those of one process")
    for each in call.operands:
        if not isinstance(each.placement, (Each, Replicate)):
            return call.apart(OF_OTHERS)
    return max(samples, key=lambda each: (bool(each.over), each.loop.startswith(PARTS)))


def _in_order(operand: Operand) -> Operand:
    placement = operand.placement
    return replace(operand, placement=replace(placement, order="")) if isinstance(placement, Shard) else operand


def _result(operation: Operation, call: Call) -> Placement:
    """The same of operands that lie in simple ways: without what scales with the number of ranks, which is added."""
    function = FUNCTIONS[operation.cls]
    if operation.cls in SIZES:
        return function(call)
    exponents = [
        0 if isinstance(p, (PerRank, Each)) else p.exponent for p in (each.placement for each in call.operands)
    ]
    if not any(exponents):
        return function(call)
    plain = tuple(
        replace(each, placement=times(each.placement, -exponent))
        for each, exponent in zip(call.operands, exponents, strict=True)
    )
    result = function(replace(call, operands=plain))
    if operation.cls in ("multiply", "contraction") and "adds" not in operation.parameters:
        return times(result, sum(exponents))
    if operation.cls == "divide":
        return times(result, exponents[0] - sum(exponents[1:]))
    if operation.parameters.get("invariant") and len(set(exponents)) == 1:
        return result
    proportional = operation.cls in KEEPING or operation.cls == "reduction" and operation.kind != "none"
    proportional |= bool(operation.parameters.get("scales")) and not call.bounded
    if proportional and len(set(exponents)) == 1:
        return times(result, exponents[0])
    return call.apart(SCALES)
