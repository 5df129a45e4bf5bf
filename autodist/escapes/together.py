"""States that no reduction gives, computed from the rows of all ranks where no gradients are asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.escapes.resolving import Escape, resolve
from autodist.interpreter import Event, Interpreter
from autodist.spread import COUNT, ROWS
from autodist.tensors.picking import picks
from autodist.values import NOTHING


def gathered_together(found: list[Escape], event: Event, run: Interpreter) -> list[Escape]:
    """The rows that something is computed from which no reduction gives, and those that decide whether it is computed:
    all ranks put theirs together and come to the same. Nothing where that is not certain."""
    if all(each.spread.is_reducible for each in found):
        return []
    bound = {name for name, over in _loops_around(event, run) if over is not None}
    decided: list[Escape] = []
    for test, loops in _deciding(event, run):
        value = run.values.get(test, NOTHING)
        if not _depends(test, run, counts=loops):
            continue
        if not value.spread.is_local or loops and value.spread is ROWS:
            return []  # `for i in range(len(x))`, `for row in x`
        decided += resolve(test, event.source, event, run, set())
    given = _given(event) | {name for name, over in _loops_around(event, run) if over is None}
    rows = [part for each in (*found, *decided) for part in _rows_within(each, bound, run)]
    gathered = {each.node for each in rows}
    values = [run.values.get(each.node, NOTHING) for each in rows]
    if any(value.spread is not ROWS or value.things or picks(value) is not None for value in values):
        return []
    if any(len(names) > 1 and not names <= given for names in (_names(each.node, bound, run) for each in rows)):
        return []  # `y == k`, `k` being a number of a rank's own
    if _reads_others(event.source.statement(event.node), gathered, bound, event.detail.const[0], run):
        return []
    return [replace(each, spread=ROWS) for each in rows]


def agreed(event: Event, run: Interpreter) -> list[Escape] | None:
    """What decides whether ranks come to a place, sums and means that are to be those of all ranks, too; None where
    ranks may part ways."""
    found: list[Escape] = []
    for test, loops in _deciding(event, run):
        if not _depends(test, run, counts=False):
            continue
        decided = list(resolve(test, event.source, event, run, set()))
        if loops or not decided or not all(each.spread.is_reducible for each in decided):
            return None
        found += [each for each in decided if each.spread is not COUNT]  # which ranks have as many of
    return found


def _deciding(event: Event, run: Interpreter) -> Iterator[tuple[ast.expr, bool]]:
    """The tests, and what loops go over, around a place in its function, but for the loops over batches."""
    for each in event.source.ancestors(event.node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        if isinstance(each, (ast.If, ast.While)):
            yield each.test, False
        elif isinstance(each, ast.For) and not _holds_loader(each.iter, run):
            yield each.iter, True


def _loops_around(event: Event, run: Interpreter) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that loops around a place bind, with what they go over; nothing for those over batches."""
    for each in event.source.ancestors(event.node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        if isinstance(each, ast.For):
            over = None if _holds_loader(each.iter, run) else each.iter
            yield from ((n.id, over) for n in ast.walk(each.target) if isinstance(n, ast.Name))


def _given(event: Event) -> set[str]:
    """The names of the parameters of the function that a place stands in."""
    home = event.source.function(event.node)
    return {each.arg for each in ast.walk(home.args) if isinstance(each, ast.arg)} if home is not None else set()


def _depends(node: ast.AST, run: Interpreter, counts: bool) -> bool:
    """Whether anything in an expression is of a rank's own samples, or their number, that is not made global."""
    if node in run.plan.reduced:
        return False
    spread = run.values.get(node, NOTHING).spread if isinstance(node, ast.expr) else NOTHING.spread
    if spread.is_local and (counts or spread is not COUNT):
        return True
    return any(_depends(each, run, counts) for each in ast.iter_child_nodes(node))


def _rows_within(escape: Escape, bound: set[str], run: Interpreter) -> list[Escape]:
    """The rows that an expression is computed from, or itself; `k` of `for k in labels.unique()` is that of all ranks
    once these are."""
    node, value = escape.node, run.values.get(escape.node, NOTHING)
    if not value.spread.is_local or isinstance(node, ast.Name) and node.id in bound:
        return []
    whole = value.spread is ROWS and picks(value) is None
    if whole or isinstance(node, (ast.Name, ast.Attribute)):
        return [escape]
    parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        parts = [node.func.value, *node.args]
    return [found for each in parts for found in _rows_within(replace(escape, node=each), bound, run)]


def _names(node: ast.AST, bound: set[str], run: Interpreter) -> set[str]:
    """The names of a rank's own in an expression."""
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id not in bound)
    return {each.id for each in names if run.values.get(each, NOTHING).spread.is_local}


def is_of(node: ast.expr, target: ast.expr) -> bool:
    """Whether an expression is the target of a statement, or an item of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node) == ast.unparse(target)


def _reads_others(node: ast.AST, gathered: set[ast.expr], bound: set[str], kept: ast.expr, run: Interpreter) -> bool:
    """Whether a statement reads something of a rank's own besides what is gathered, `self.centres[labels[0]] = ...`,
    and what it has ``kept``, which is that of all ranks once these are."""
    if node in gathered or node in run.plan.reduced or isinstance(node, ast.Name) and node.id in bound:
        return False
    if isinstance(node, ast.Name) and ast.unparse(node) == ast.unparse(kept):
        return False
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return run.values.get(node, NOTHING).spread.is_local
    return any(_reads_others(each, gathered, bound, kept, run) for each in ast.iter_child_nodes(node))


def _holds_loader(node: ast.expr, run: Interpreter) -> bool:
    parts = (each for each in ast.walk(node) if isinstance(each, ast.expr))
    return any(any(run.values.get(each, NOTHING).objects("loader")) for each in parts)
