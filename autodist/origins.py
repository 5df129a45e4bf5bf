"""What values are computed from: the expressions that made them, and the losses that are made of them."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter, once_a_run
from autodist.program import held
from autodist.solve.steps import steps_of
from autodist.source import Source, all_of, walk
from autodist.values import NOTHING, Items


@once_a_run
def learnt_from(run: Interpreter) -> frozenset[ast.expr]:
    """The expressions that the losses are computed from: training needs this rank's share of them."""
    steps = steps_of(run.runs.program)
    learnt = {*steps.reaching, *steps.backward}
    values = run.runs.program.values.items()
    return frozenset(
        node for node, value in values if isinstance(node, ast.expr) and not learnt.isdisjoint(held(value))
    )


def roots(node: ast.expr, run: Interpreter, seen: set[ast.AST]) -> set[ast.expr]:
    """The expressions that made what ``node`` is computed from."""
    if node in seen:
        return set()
    seen.add(node)
    found: set[ast.expr] = set()
    for each in walk(node):
        if isinstance(each, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            for _, made in run.values.get(each, NOTHING).made:
                found |= set(all_of(made, ast.expr)) | roots(made, run, seen)
    return found


def upstream(node: ast.expr, run: Interpreter) -> set[ast.expr]:
    """The expressions that ``node`` is computed from, also through lists that these were put into:
    `weights.append(1 / number)`."""
    found = roots(node, run, set()) | {each for each in walk(node) if isinstance(each, ast.expr)}
    fresh, seen = set(found), set[ast.AST]()
    while fresh:
        lists = {thing for node in fresh for thing in run.values.get(node, NOTHING).things if isinstance(thing, Items)}
        stored = {stored for each in lists for _, stored in each.stores}
        made = [found for each in stored for found in (each, *roots(each, run, seen))]
        fresh = {n for each in made for n in walk(each) if isinstance(n, ast.expr)} - found
        found |= fresh
    return found


def is_cut(node: ast.expr, source: Source) -> bool:
    """Whether no gradient flows through a use: `out` in `out[labels == 0].detach().mean(0)`."""
    for each in source.ancestors(node):
        if not isinstance(each, ast.expr):
            return False
        if isinstance(each, ast.Attribute) and each.attr in ("data", "detach"):
            return True
    return False


def sized_like(node: ast.expr) -> ast.expr | None:
    """The tensor of `x.size()` and `x.shape`."""
    asked = isinstance(node, ast.Call) and not node.args
    named = node.func if isinstance(node, ast.Call) else node
    is_shape = isinstance(named, ast.Attribute) and named.attr == ("size" if asked else "shape")
    return named.value if isinstance(named, ast.Attribute) and is_shape else None
