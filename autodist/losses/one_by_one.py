"""Loops that take the rows of a tensor one after the other, and whether a rank may go through its own alone.

It may where each round is about its own row, and all that is left of it adds up, or is written to that row's place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter, Loop
from autodist.losses import rounds
from autodist.script import Site
from autodist.source import Source, counted_of, last_name, walk
from autodist.spread import COUNT, ROWS
from autodist.tensors import mixing
from autodist.values import NOTHING, Turn

DRAWING = ("random", "random_number", "numpy_draw", "draw")
STEPPING = ("backward", "step", "optimizer_zero_grad", "model_zero_grad", "clip", "gradient")


def objections(over: ast.AST, run: Interpreter) -> Iterator[tuple[Site, str]]:
    """Why the rounds of the loop that goes ``over`` rows are not those of a rank's own rows."""
    inside = [event for event in run.events if any(_over(loop) is over for loop in event.loops)]
    loop = next((each for event in inside for each in event.loops if _over(each) is over), None)
    if loop is None or loop.through is None or not loop.certain:
        yield Site(run.sources[over], over), mixing.ONE_BY_ONE
        return
    source, through = loop.source, loop.through
    if not _is_each_row(through.iter, run):
        yield Site(source, through.iter), "it does not go through all of the rows, from the first one on"
    for name in _used_elsewhere(through, source, run):
        yield Site(source, name), f"{name.id} is the number of a row, and a rank numbers its own"
    for node, reason in rounds.tied(through, source, run):
        yield Site(run.sources.get(node, source), node), reason
    for event in inside:
        around = event.loops[: [each.node for each in event.loops].index(loop.node)]
        if any(each.certain and each.node is not loop.node for each in around):
            yield Site(source, through.iter), "another loop around it goes through rows as well"
        if event.grad and event.kind in STEPPING:
            yield Site(event.source, event.node), "a step is made of each of them"
        if event.kind in DRAWING:
            yield Site(event.source, event.node), "random numbers are drawn for each of them"


def _over(loop: Loop) -> ast.expr | None:
    return loop.through.iter if loop.through is not None else None


def _is_each_row(over: ast.expr, run: Interpreter) -> bool:
    """`range(len(x))`, `range(0, n)`, `zip(x, y)`, `enumerate(x)`, `x`"""
    name = last_name(over.func) if isinstance(over, ast.Call) else ""
    if isinstance(over, ast.Call) and name == "range" and over.args:
        begins = over.args[0] if len(over.args) == 2 else ast.Constant(0)
        return len(over.args) < 3 and getattr(begins, "value", None) == 0 and _is_count(over.args[-1], run)
    if isinstance(over, ast.Call) and name in ("zip", "enumerate"):
        alone = name == "zip" or len(over.args) == 1
        return alone and not over.keywords and all(_is_each_row(each, run) for each in over.args)
    value = run.values.get(over, NOTHING)
    return mixing.is_whole(value) and run.spreads.get(over) == {ROWS} and not value.things and not _by_turn(over, run)


def _is_count(node: ast.expr, run: Interpreter, depth: int = 4) -> bool:
    """Whether it is the number of a rank's rows, and no part of it."""
    value = run.values.get(node, NOTHING)
    if value.spread is not COUNT or not depth:
        return False
    if node in run.plan.counts or counted_of(node) is not None:
        return True
    made = [each for _, each in value.made if each is not node] if isinstance(node, ast.Name) else []
    return bool(made) and all(_is_count(each, run, depth - 1) for each in made)


def _by_turn(node: ast.expr, run: Interpreter) -> bool:
    return any(isinstance(each, Turn) for each in run.values.get(node, NOTHING).origins)


def _used_elsewhere(loop: rounds.Loop, source: Source, run: Interpreter) -> Iterator[ast.Name]:
    """Where a round uses the number of its row for anything else than to take that row."""
    names = rounds.numbers(loop)
    for part in rounds.body_of(loop, source):
        for each in walk(part):
            if isinstance(each, ast.Name) and each.id in names and not _takes_row(each, source, run):
                yield each


def _takes_row(name: ast.Name, source: Source, run: Interpreter) -> bool:
    """`i` of `x[i]` and `x[i, :]`"""
    index: ast.AST = name
    above = source.parents.get(index)
    if isinstance(above, ast.Tuple) and above.elts[0] is index:
        index, above = above, source.parents.get(above)
    if not isinstance(name.ctx, ast.Load) or not isinstance(above, ast.Subscript) or above.slice is not index:
        return False
    held = run.values.get(above.value, NOTHING)
    rows = mixing.is_whole(held) and run.spreads.get(above.value) == {ROWS}
    return rows and not held.things and not _by_turn(above.value, run)
