"""The axes that a call names, counted as the samples' axis is: from the first one."""

from __future__ import annotations

import ast

from autodist.tensors.operations import (
    BEHIND_ANOTHER,
    COUNTED,
    EXTREMES,
    IN_PLACE,
    MEANS,
    RELATING,
    SUMS,
    TURNING,
    axis,
)
from autodist.values import Value

SEVERAL = TURNING | {"flip"}
"""What takes any number of axes, one after the other."""
NAMING = BEHIND_ANOTHER | SEVERAL | RELATING | MEANS | SUMS | EXTREMES | frozenset("squeeze unsqueeze size".split())
ALONG = RELATING | frozenset("flip roll".split())
"""What lets the elements along an axis meet, or puts others in their places."""
GUESSING = frozenset("softmax log_softmax softmin".split())
"""What takes an axis by the number of them where none is named: the first one of one or of three."""
KEYWORDS = ("dim", "axis", "dims", "dim0", "dim1")


def from_front(name: str, call: ast.Call, position: int, axes: int | None) -> ast.Call:
    """A call on a tensor with so many axes that names them by their numbers from the first one: `x.softmax(-1)` of one
    axis is `x.softmax(0)`. What follows ``position`` is not the tensor."""
    name = IN_PLACE.get(name, name)
    if axes is None or name not in NAMING:
        return call
    if name in GUESSING and axis(call, position) is None:
        first = ast.keyword("dim", ast.Constant(0 if axes in (1, 3) else 1))
        return ast.Call(call.func, call.args, [*call.keywords, first])
    if name in COUNTED and axis(call, position + 1) is None:
        return ast.Call(call.func, call.args, [*call.keywords, ast.keyword("dim", ast.Constant(axes - 1))])
    count, start = axes + (name == "unsqueeze"), position + (name in BEHIND_ANOTHER)
    stop = len(call.args) if name in SEVERAL else start + 1
    args = [_positive(each, count) if start <= at < stop else each for at, each in enumerate(call.args)]
    keywords = [ast.keyword(k.arg, _positive(k.value, count)) if k.arg in KEYWORDS else k for k in call.keywords]
    return ast.Call(call.func, args, keywords)


def is_unread(name: str, call: ast.Call, position: int) -> bool:
    """Whether a call goes along an axis that cannot be read: `torch.softmax(x, args.dim)`."""
    return name in ALONG and axis(call, position + (name in BEHIND_ANOTHER)) is False


def as_written(told: Value) -> ast.expr:
    """An axis that a layer is made with, as it would be written in a call; None is none."""
    read = told.const is None or type(told.const) is int and not told.things
    return ast.Constant(told.const) if read else ast.Name("axis", ast.Load())


def _positive(node: ast.expr, count: int) -> ast.expr:
    if isinstance(node, (ast.Tuple, ast.List)):
        return ast.Tuple([_positive(each, count) for each in node.elts], ast.Load())
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else None
    written = inner if inner is not None else node
    if not isinstance(written, ast.Constant) or type(written.value) is not int:
        return node
    at = -written.value if inner is not None else written.value
    return ast.copy_location(ast.Constant(at + count), node) if -count <= at < 0 else node
