"""Whether the samples of two tensors lie along different axes, so that each of them meets all others.

`x[:, None] - x[None]` says so where it stands; `x = x.unsqueeze(0)`, `x = x.expand(n, n, d)` says it before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.source import last_name
from autodist.spread import COLUMNS, COUNT
from autodist.tensors.calls import Latest, is_list, number_of

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
        for each in ast.walk(expression):
            if isinstance(each, ast.expr) and puts_axis_first(each, latest):
                return True
            named = isinstance(each, (ast.Name, ast.Attribute)) and (depth == DEPTH or latest(each).spread is COLUMNS)
            if named and depth:
                pending += [(made, depth - 1) for _, made in latest(each).made]  # type: ignore[arg-type]
    return False


def puts_axis_first(node: ast.expr, latest: Latest) -> bool:
    """`x[None]`, `x.unsqueeze(0)`, `x.view(1, n, -1)`, `x.unsqueeze(-3)` of two axes."""
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
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
    given = sizes[0].elts if is_list(sizes) else sizes  # type: ignore[attr-defined]
    if len(given) < 2 or number_of(given[0]) != 1:
        return False
    return isinstance(given[1], ast.Starred) or number_of(given[1]) == -1 or latest(given[1]).spread is COUNT


def joined(node: ast.expr) -> list[ast.expr]:
    """The tensors that are joined, whose axes are the same: `torch.cat((a, b), 2)`."""
    given = node.args[:1] if isinstance(node, ast.Call) and last_name(node.func) in JOINING else []
    return [*given[0].elts] if given and isinstance(given[0], (ast.Tuple, ast.List)) else []
