"""How many axes results have, and their sizes where they are known."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeAlias

from autodist.operations import Operation
from autodist.placement.call import OTHER_SIZE, Call
from autodist.placement.lattice import Shard
from autodist.placement.layout import movedim, permute, squeezed, transpose
from autodist.placement.patterns import REST, sides
from autodist.placement.products import contracted

Sizes: TypeAlias = tuple[int | None, ...] | None
"""A number for each axis, None where it is unknown; None where the number of axes is."""

ALIKE = frozenset("same linear elementwise add multiply divide random_like fill_like scan batch_statistic".split())
"""The classes of operations whose results have as many axes as their largest operand."""
RESIZING = frozenset("sort index repeat_each concatenate".split())
"""The classes of those that have more or fewer numbers along an axis."""
MOVES = {"permute": permute, "transpose": transpose, "movedim": movedim}
ONE = frozenset(["torch.Tensor.item", "builtins.float", "builtins.int", "builtins.len"])
"""What gives one number."""


def result_sizes(operation: Operation, name: str, call: Call, given: tuple[Sizes, ...]) -> Sizes:
    """The sizes of a result, from those of the operands."""
    if name in ONE or operation.cls == "length" and (call.axis is not None or operation.parameters.get("all")):
        return ()
    first = given[0] if given else None
    if operation.parameters.get("reshapes") or operation.cls == "decomposition":
        return None
    if operation.cls == "sequence":
        axes = first if first or call.first.shard is None else (None, None, None)
        return (*axes[:-1], call.width) if axes else None
    if operation.cls == "gather":
        if call.axis is None and not call.untold:
            return None  # `torch.take_along_dim(x, places)`, of all its numbers in line
        return first if operation.parameters.get("puts") or len(given) < 2 else given[1] or first
    if operation.cls in RESIZING or operation.parameters.get("resizes") and operation.cls == "scan":
        return _resized(call, first)
    if operation.cls == "scan" and call.axis is None and call.number("default") is None:
        return None
    if operation.cls in ALIKE:
        return _broadcast(given)
    if operation.cls == "reduction":
        return _reduced(call, first)
    if operation.cls in ("loss", "sample_loss"):
        one_each = operation.cls == "sample_loss" and first is not None and len(first) > 1
        if not call.reduction:
            return None
        if call.reduction != "none" or not first or not one_each:
            return () if call.reduction != "none" else first
        return (first[call.number("batch") or 0], *(() if "batch" in call.parameters else first[2:]))
    if operation.cls == "per_sample":
        return _of_layer(operation, call, first)
    if operation.cls in ("expand", "repeat"):
        return _repeated(operation.cls, call, first)
    if operation.cls == "view":
        return tuple(None if each == -1 else each for each in call.sizes) or None
    if operation.cls == "pattern":
        after = sides(call)[1]
        numbers = [int(each[0]) if len(each) == 1 and each[0].isdigit() else None for each in after]
        return None if [REST] in after or not after else tuple(numbers)
    if operation.cls == "fill" or operation.cls == "random":
        return call.sizes or None
    if operation.cls == "arange":
        return (None, None) if operation.short == "eye" else (None,)
    if operation.cls in ("contraction", "pairwise"):
        return contracted(call, given)
    return _moved(operation.cls, call, given)


def _resized(call: Call, first: Sizes) -> Sizes:
    """The same sizes, but along the axes that are named, where there may be more or fewer."""
    default = call.number("default")
    if first is None or call.axis is None and default is None:
        return None
    told = call.named(len(first)) if call.axis is not None else (default or 0,)
    changed = {each % len(first) for each in told} if first else set()
    return tuple(None if at in changed else size for at, size in enumerate(first))


def _broadcast(given: tuple[Sizes, ...]) -> Sizes:
    if not given or any(each is None for each in given):
        return None
    known = [each for each in given if each is not None]
    longest = max(map(len, known))
    padded = [(1,) * (longest - len(each)) + each for each in known]
    return tuple(_together(sizes) for sizes in zip(*padded, strict=True))


def _together(sizes: tuple[int | None, ...]) -> int | None:
    larger = {each for each in sizes if each != 1}
    return larger.pop() if len(larger) == 1 else 1 if not larger else None


def _reduced(call: Call, first: Sizes) -> Sizes:
    default = call.number("default")
    if call.axis is None and default is None:
        return ()
    if first is None:
        return None
    told = call.named(len(first)) if call.axis is not None else () if default is None else (default,)
    gone = {each % len(first) for each in told} if first else set()
    if call.keepdim:
        return tuple(1 if at in gone else size for at, size in enumerate(first))
    return tuple(size for at, size in enumerate(first) if at not in gone)


def _repeated(cls: str, call: Call, first: Sizes) -> Sizes:
    """The sizes of `x.expand(8, -1, 3)` and of `x.repeat(1, 2, 1)`, whose new axes come first."""
    if first is None or len(call.sizes) < len(first):
        return (None,) * len(call.sizes) or None
    before = (1,) * (len(call.sizes) - len(first)) + first
    pairs = zip(before, call.sizes, strict=True)
    if cls == "expand":
        return tuple(size if told == -1 else told for size, told in pairs)
    return tuple(None if size is None or told in (None, OTHER_SIZE) else size * told for size, told in pairs)


def _of_layer(operation: Operation, call: Call, first: Sizes) -> Sizes:
    mixes = operation.parameters.get("mixes")
    if operation.short in ("Embedding", "embedding", "one_hot"):
        return (*first, call.width) if first is not None else None
    if first is None:
        any_number = operation.short == "pad"  # which pads the last axes of as many as there are
        if not isinstance(mixes, int) or mixes < 2 or any_number:
            return None
        return (None, call.width, *(None,) * (mixes - 1))
    if not isinstance(mixes, int) and not operation.parameters.get("resizes"):
        return first
    if operation.short == "pad" and call.mixed is not None:
        padded = range(len(first))[call.mixed]
        return tuple(None if at in padded else size for at, size in enumerate(first))
    if not isinstance(mixes, int) or operation.short == "pad" or not mixes:
        return (*first[:1], *(None for _ in first[1:]))
    if mixes >= len(first):
        return (None,) * len(first)
    return (*first[:-mixes], call.width, *(None,) * (mixes - 1))


def _moved(cls: str, call: Call, given: tuple[Sizes, ...]) -> Sizes:
    first = given[0] if given else None
    if cls == "flatten":
        told = call.named()
        if first is None:
            return (None, None) if told in ((1,), (1, -1)) else None
        start, end = (told[0] if told else 0), (told[1] if len(told) > 1 else -1)
        if not first:
            return (None,)
        start, end = start % len(first), end % len(first)
        merged = first[start : end + 1]
        return (*first[:start], None if None in merged else prod(n or 0 for n in merged), *first[end + 1 :])
    if first is None:
        return None
    if cls == "unsqueeze" or cls == "stack":
        return _inserted(first, call.axis, 1 if cls == "unsqueeze" else None)
    if cls == "select":
        at = call.axes()[0] if call.axis is not None and call.first.axes == len(first) else 0
        return (*first[:at], *first[at + 1 :]) if first else None
    if cls in MOVES:
        return _in_order(cls, call, first)
    if cls == "unflatten":
        at = call.axes()[0]
        return (*first[:at], *(None if each == -1 else each for each in call.sizes), *first[at + 1 :])
    if cls == "squeeze":
        gone = squeezed(call) if call.first.axes == len(first) else ()
        return tuple(each for at, each in enumerate(first) if at not in gone)
    if cls == "view_as":
        return given[1] if len(given) > 1 else None
    return None


def _in_order(cls: str, call: Call, first: tuple[int | None, ...]) -> Sizes:
    """The sizes of axes that change places."""
    if call.first.axes != len(first):
        return (None,) * len(first)
    others = call.operands[1:]
    moved = [
        MOVES[cls](replace(call, operands=(replace(call.first, placement=Shard(at)), *others)))
        for at in range(len(first))
    ]
    sizes = {each.axis: size for each, size in zip(moved, first, strict=True) if isinstance(each, Shard)}
    return tuple(sizes.get(at) for at in range(len(first)))


def _inserted(first: tuple[int | None, ...], axis: object, size: int | None) -> Sizes:
    at = axis % (len(first) + 1) if isinstance(axis, int) else 0
    return (*first[:at], size, *first[at:])
