"""Losses that take the samples of a batch one by one, and go by what number each has there: a rank counts its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter, Loop
from autodist.losses import rounds
from autodist.script import Site
from autodist.source import Source, last_name
from autodist.values import NOTHING, Function, Items

BINDING = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def used(run: Interpreter) -> Iterator[Site]:
    """Where the number of a sample in its batch says more than which sample it is: `loss += 0.9**i * f(out[i], y[i])`,
    `weights[i]`, `y[i - 1]`, `if i > 0:`."""
    if run.plan.wholes is not None:
        return
    for loop in _loops(run):
        through, source = loop.through, loop.source
        assert through is not None
        names = rounds.numbers(through)
        body = rounds.body_of(through, source)
        for _ in body if names else ():  # what is computed from numbers is known after as many rounds at most
            names, before = names | _derived(body, names, source, run), names
            if names == before:
                break
        for node in _others(body, names, source, run):
            if _trains(node, body, source, run):
                yield Site(source, node)
                break


def _loops(run: Interpreter) -> list[Loop]:
    """Those over a rank's samples, within the steps of training."""
    found: dict[ast.AST, Loop] = {}
    for event in run.events:
        if not event.grad or event.on_one_rank:
            continue
        for at, loop in enumerate(event.loops):
            if loop.node in found or not (loop.by_row and loop.certain) or loop.through is None:
                continue
            within = any(each.node in run.step_loops for each in event.loops[:at])
            if within and loop.through.iter not in run.plan.turns:
                found[loop.node] = loop
    return list(found.values())


def _others(body: list[ast.AST], names: frozenset[str], source: Source, run: Interpreter) -> Iterator[ast.Name]:
    """Where the numbers are read, and not to take a sample."""
    for node in (each for part in body for each in ast.walk(part)):
        if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
            takes = _takes_sample(node, source, run) and not _is_moved(node, body)
            if not takes and not _is_handed_on(node, source, run):
                yield node


def _is_moved(name: ast.Name, body: list[ast.AST]) -> bool:
    """Whether it is that of another sample: `j = (i + 1) % n`. What is multiplied may number the places in each."""
    made = [
        each.value for part in body for each in ast.walk(part) if isinstance(each, ast.Assign) and _binds(each, name)
    ]
    sums = [[n.op for n in ast.walk(each) if isinstance(n, ast.BinOp)] for each in made]
    return any(ops and all(isinstance(op, (ast.Add, ast.Sub, ast.Mod)) for op in ops) for ops in sums)


def _binds(statement: ast.Assign, name: ast.Name) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name.id for each in statement.targets)


def _takes_sample(name: ast.Name, source: Source, run: Interpreter) -> bool:
    """`i` of `out[i]`, `out[i, :n]`, `out[i : i + 1]`, and of what is written to its place"""
    index: ast.AST = name
    above = source.parents.get(index)
    while isinstance(above, ast.BinOp):
        index, above = above, source.parents.get(above)
    if isinstance(above, ast.Slice):
        lower = above.lower
        times = isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult)  # `out[2 * i : 2 * i + 2]`
        if not times and not (isinstance(lower, ast.Name) and lower.id == name.id):
            return False
        index, above = above, source.parents.get(above)
    elif index is not name:
        return False
    if isinstance(above, ast.Tuple) and above.elts[0] is index:
        index, above = above, source.parents.get(above)
    if not isinstance(above, ast.Subscript) or above.slice is not index:
        return False
    held = run.values.get(above.value, NOTHING)
    inside = [part for t in held.things if isinstance(t, Items) for part in (*t.parts, t.element)]
    listed = any(part.spread.is_local or part.origins for part in inside)
    return not isinstance(above.ctx, ast.Load) or held.spread.is_local or listed or bool(held.origins)


def _is_handed_on(name: ast.Name, source: Source, run: Interpreter) -> bool:
    """Whether a function of the project is given it, or it is shown."""
    for above in source.ancestors(name):
        if isinstance(above, (ast.stmt, ast.comprehension)):
            break
        if isinstance(above, ast.JoinedStr) or isinstance(above, ast.Call) and last_name(above.func) in rounds.SHOWING:
            return True
        if isinstance(above, ast.Call) and name in (*above.args, *(each.value for each in above.keywords)):
            return any(isinstance(t, Function) for t in run.values.get(above.func, NOTHING).things)
    return False


def _derived(body: list[ast.AST], names: frozenset[str], source: Source, run: Interpreter) -> frozenset[str]:
    """Names of what is computed from numbers alone: `factor = 0.9**i`."""
    read = {source.statement(each) for each in _others(body, names, source, run)}
    bound = [each for each in read if isinstance(each, ast.Assign) and not _learns(each.value, run)]
    return frozenset(t.id for each in bound for t in each.targets if isinstance(t, ast.Name))


def _trains(name: ast.Name, body: list[ast.AST], source: Source, run: Interpreter) -> bool:
    """Whether gradients flow by way of it: into a term that it is a part of, or that it decides about."""
    for above in source.ancestors(name):
        if above in body and isinstance(above, ast.expr):
            return _learns(above, run)  # of a comprehension
        if isinstance(above, ast.IfExp) and name in ast.walk(above.test):
            return _learns(above.body, run) != _learns(above.orelse, run)
        if isinstance(above, (ast.If, ast.While)) and name in ast.walk(above.test):
            return _decides(above, body, run)
        if isinstance(above, ast.Expr):  # `writer.add_scalar("loss", term, step + i)` is only shown
            return _grows(above.value, run)
        if isinstance(above, ast.stmt):
            value = above.value if isinstance(above, (*BINDING, ast.Return)) else None
            return value is not None and any(_learns(each, run) for each in ast.walk(value))
    return False


def _decides(branch: ast.If | ast.While, body: list[ast.AST], run: Interpreter) -> bool:
    """Whether a condition leaves terms out, rather than say how the first one is begun: `if i == 0: loss = term`."""
    learns = [
        any(_grows(each, run) for part in block for each in ast.walk(part)) for block in (branch.body, branch.orelse)
    ]
    if any(isinstance(each, (ast.Continue, ast.Break)) for part in branch.body for each in ast.walk(part)):
        return any(_grows(each, run) for part in body for each in ast.walk(part))
    return learns[0] != learns[1]


def _grows(node: ast.AST, run: Interpreter) -> bool:
    """Whether it keeps or adds up what gradients flow from."""
    if isinstance(node, BINDING):
        return node.value is not None and _learns(node.value, run)
    added = isinstance(node, ast.Call) and last_name(node.func) in rounds.GROWING
    return added and isinstance(node, ast.Call) and any(_learns(each, run) for each in node.args)


def _learns(node: ast.AST, run: Interpreter) -> bool:
    value = run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
    return bool(value.models) and value.spread.is_local
