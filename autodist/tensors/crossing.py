"""Whether the samples of two tensors lie along different axes, so that each of them meets all others.

`x[:, None] - x[None]` says so where it stands; `x = x.unsqueeze(0)`, `x = x.expand(n, n, d)` says it before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.source import first_index, last_name, operands, walk
from autodist.spread import COLUMNS, COUNT
from autodist.tensors import operations
from autodist.tensors.calls import Latest, number_of

JOINING = frozenset("cat concat concatenate stack vstack hstack".split())
DEPTH = 8


def sets_apart(nodes: Iterable[ast.expr], latest: Latest) -> bool:
    """Whether an axis was put ahead of the samples in one of some operands, or in what they were made of."""
    pending, seen = [(node, DEPTH) for node in nodes], set[ast.expr]()
    while pending:
        expression, depth = pending.pop()
        if expression in seen:
            continue
        seen.add(expression)
        for each in walk(expression):
            if isinstance(each, ast.expr) and puts_axis_first(each, latest):
                return True
            named = isinstance(each, (ast.Name, ast.Attribute)) and (depth == DEPTH or latest(each).spread is COLUMNS)
            if named and depth:
                pending += [(made, depth - 1) for _, made in latest(each).made]  # type: ignore[arg-type]
    return False


def are_apart(node: ast.expr, latest: Latest) -> bool:
    """Whether an operation meets the samples of its operands with each other: `x.unsqueeze(1) - y.unsqueeze(0)`, or
    those of a tensor that is turned, `times.T - times`."""
    if sets_apart([node], latest):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return False  # `hits.t() @ x`, a sum over the samples
    sides = operands(node)[:2]
    row, other = sides if latest(sides[0]).spread is COLUMNS else sides[::-1]
    made = [expression for side in sides for _, expression in latest(side).made]
    turned = [held for each in (row, *made) if isinstance(each, ast.expr) and (held := _turned(each)) is not None]
    alike = any(ast.unparse(each) == ast.unparse(other) for each in turned)
    return bool(turned) and (alike or latest(row).axes == latest(other).axes == 2)


def _turned(node: ast.expr) -> ast.expr | None:
    """`times` of `times.T` and `times.t()`, whose samples lie along one row."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "T" else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "t" and not node.args:
        return node.func.value
    return None


def puts_axis_first(node: ast.expr, latest: Latest) -> bool:
    """`x[None]`, `x.unsqueeze(0)`, `x.view(1, n, -1)`, `x.unsqueeze(-3)` of two axes."""
    if isinstance(node, ast.Subscript):
        first = first_index(node)
        return isinstance(first, ast.Constant) and first.value is None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name = node.func.attr
    if name in ("view", "reshape"):
        return is_row_of_all(node.args, latest)
    if name not in ("unsqueeze", "expand_dims"):
        return False
    function = last_name(node.func.value) in ("torch", "np", "numpy")
    rest = node.args[function:]
    at = next((k.value for k in node.keywords if k.arg in ("dim", "axis")), rest[0] if rest else None)
    number = number_of(at)
    held = node.args[0] if function and node.args else node.func.value
    return number == 0 or number is not None and number < 0 and latest(held).axes == -number - 1


def is_row_of_all(sizes: list[ast.expr], latest: Latest) -> bool:
    """Whether a tensor is laid out with one row, and its samples behind that: `labels.view(1, -1)`, `(1, n, d)`,
    `(1, *x.shape)`."""
    behind = operations.behind_one_row(sizes)
    return operations.is_one_row_of_all(sizes) or behind is not None and latest(behind).spread is COUNT


def joined(node: ast.expr) -> list[ast.expr]:
    """The tensors that are joined, whose axes are the same: `torch.cat((a, b), 2)`."""
    given = node.args[:1] if isinstance(node, ast.Call) and last_name(node.func) in JOINING else []
    return [*given[0].elts] if given and isinstance(given[0], (ast.Tuple, ast.List)) else []
