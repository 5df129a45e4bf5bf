"""Rows of which several are made of each sample, `views.view(n * 2, -1)`: those of a sample stand together."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter
from autodist.source import last_name, operands, walk
from autodist.spread import COUNT, ROWS
from autodist.tensors.calls import number_of
from autodist.values import NOTHING, Object, Wrapped

RESHAPES = frozenset("view reshape flatten ravel".split())


def may_fold(node: ast.Call) -> bool:
    """Whether it may make several rows of each sample: `labels.view(-1)`."""
    if last_name(node.func) in ("view", "reshape"):
        return bool(sizes := _sizes(node)) and ast.unparse(sizes[0]) == "-1"
    return last_name(node.func) in ("flatten", "ravel") and (not node.args or ast.unparse(node.args[0]) == "0")


def _surely_folds(node: ast.Call, run: Interpreter) -> bool:
    """`views.view(n * 2, -1)`, `views.flatten(0, 1)`."""
    if last_name(node.func) == "flatten":
        ends = [number_of(each) for each in node.args[-2:]]
        return len(ends) == 2 and ends[0] == 0 and ends[1] not in (0, -1, None)
    first = next(iter(_sizes(node)), None)
    if not isinstance(first, ast.BinOp) or not isinstance(first.op, ast.Mult):
        return False
    return any(run.values.get(each, NOTHING).spread is COUNT for each in (first.left, first.right))


def _sizes(node: ast.Call) -> list[ast.expr]:
    sizes = node.args
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        return sizes[0].elts
    return sizes


def is_folded(node: ast.expr, run: Interpreter, certain: bool = False, depth: int = 8) -> bool:
    """Whether rows are not those of samples, but several of each: `net(pictures.view(-1, 3, 8, 8))`; where that must be
    ``certain``, a size of -1 tells nothing."""
    if not depth or run.values.get(node, NOTHING).spread is not ROWS:
        return False
    if isinstance(node, ast.Name):
        return any(is_folded(made, run, certain, depth - 1) for _, made in run.values[node].made if made is not node)
    if isinstance(node, ast.Call) and last_name(node.func) in RESHAPES:
        return _surely_folds(node, run) if certain else may_fold(node)
    inside = [] if certain else _answers(node, run)
    return any(is_folded(each, run, certain, depth - 1) for each in (*operands(node), *inside))


def _answers(node: ast.expr, run: Interpreter) -> list[ast.expr]:
    """What the forward pass of a model answers that is called: `self.out(h).view(-1, words)`."""
    called = run.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else ()
    models = [t.module if isinstance(t, Wrapped) else t for t in called]
    bodies = [each.node for t in models if isinstance(t, Object) for each in t.functions("forward")]
    answers = (n.value for body in bodies for n in walk(body) if isinstance(n, ast.Return))
    return [each for each in answers if each is not None]
