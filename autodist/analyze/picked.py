"""Steps that learn from some of the rows of a batch that a loader has handed out before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.analyze.handmade import origins_of
from autodist.interpreter import Event, Interpreter
from autodist.interpreter.events import Loop
from autodist.models import modules_behind
from autodist.placement import Placement, Shard
from autodist.program import Operation, closure, held
from autodist.rule import Severity
from autodist.script import Concern
from autodist.solve.steps import steps_of
from autodist.source import first_index, last_name, shortened, walk
from autodist.values import NOTHING, Draw, Object, Path_, drawn_from

SPLITTING = frozenset({"split", "split_with_sizes", "tensor_split"})
TAKEN_FROM = ("iterate", "builtins.list", "builtins.tuple")
"""The names of operations that give what is in something, one or all: `list(x.chunk(4))`."""
THROUGH = frozenset({"zip", "enumerate", "tqdm", "list"})


def steps_on_parts(run: Interpreter) -> Concern | None:
    """An optimizer steps for each of several parts of a batch, `model(x[i : i + 8])`: of a rank's share there are fewer
    such parts than of the batch, or more rows in all ranks' parts together."""
    loaders = {each.key for each in origins_of(run) if isinstance(each, Object) and not run.is_sharded(each)}
    takes = [event for kind in ("iterate", "iter", "listed") for event in run.of(kind)]
    for event in run.of("step"):
        if not event.loops or not loaders or event.inside_forward:
            continue
        loop = event.loops[-1]
        inside = [
            take for take in takes if take.node is loop.node or any(each.node is loop.node for each in take.loops)
        ]
        if any(loader.key in loaders for take in inside for loader in drawn_from(take.value)):
            continue
        part = next((each for each in _given(loop, run) if _is_part(each, loaders, run)), None)
        if part is None and loop.node in run.sample_loops and isinstance(loop.node, ast.For):
            calls = [last_name(n.func) for n in walk(loop.node.iter) if isinstance(n, ast.Call)]
            part = loop.node.iter if set(calls) <= THROUGH else None  # `for a, b in zip(x, y)`, not `x.chunk(4)`
        if part is not None:
            message = (
                f"each step learns from {shortened(loop.source.code(part))}, some of the rows of a batch that the "
                "loader hands out before, of which a rank has its share only: let a loader hand out what a step learns "
                "from"
            )
            return Concern("AD902", loop.source, part, message, Severity.REFUSAL)
    return _counted_by_number(loaders, run)


def cut_into_pieces(run: Interpreter) -> Iterator[Concern]:
    """Steps that go over so many pieces of a batch, `for part in x.chunk(4)`: a rank that has fewer rows has fewer."""
    learnt = steps_of(run.runs.program).differentiated
    for event in run.of("forward"):
        loop = event.loops[-1] if event.grad and event.loops and not event.inside_forward else None
        for cut in _cut_for(loop.node.iter, run) if loop is not None and isinstance(loop.node, ast.For) else ():
            if not learnt.isdisjoint(cut.inputs[0].operations) or not isinstance(cut.node, ast.expr):
                continue  # what a model gave
            message = (
                f"{shortened(cut.source.code(cut.node))} gives fewer pieces, and others, on a rank that has fewer rows "
                "or some that do not divide: results are those of one process where the batch divides by their number "
                "times that of the ranks"
            )
            yield Concern("AD602", cut.source, cut.node, message, Severity.WARNING)
            return


def _cut_for(through: ast.expr, run: Interpreter) -> list[Operation]:
    """What cuts a rank's rows into so many pieces, for a loop through these: `zip(x.chunk(4), y.chunk(4))`"""
    pieces = closure(held(run.runs.program.at(through)), lambda op: op.given if op.name in TAKEN_FROM else ())
    cuts = [each for each in pieces if each.name.endswith(".chunk") and each.inputs]
    rows = [each for each in cuts if any(map(_are_rows, map(run.placements.of.get, each.inputs[0].operations)))]
    along = ((each, each.argument("dim", 2)) for each in rows)
    return sorted((each for each, axis in along if axis is None or axis.constant == 0), key=lambda op: op.number)


def _are_rows(placement: Placement | None) -> bool:
    return isinstance(placement, Shard) and not placement.axis


def _counted_by_number(loaders: set[tuple[int, Path_]], run: Interpreter) -> Concern | None:
    """`for i in range(0, 32, 8)`, through the rows of a batch `x[i : i + 8]`, of which a rank has fewer than 32."""
    for event in run.of("forward"):
        loop = event.loops[-1] if event.grad and event.loops else None
        node = loop.node if loop is not None else None
        if loop is None or not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
            continue
        if last_name(node.iter.func) != "range" or len(node.iter.args) != 3 or not isinstance(node.target, ast.Name):
            continue
        stop = node.iter.args[1]
        for part in _given(loop, run) if run.is_alike(stop) else ():
            counts = any(isinstance(n, ast.Name) and n.id == node.target.id for n in walk(part))
            if counts and isinstance(part, ast.Subscript) and _is_part(part, loaders, run):
                message = (
                    f"goes on to row {shortened(loop.source.code(stop))} of a batch, of which a rank has its share "
                    f"only: count the rows that there are, len({shortened(loop.source.code(part.value))})"
                )
                return Concern("AD902", loop.source, stop, message, Severity.REFUSAL)
    return None


def _given(loop: Loop, run: Interpreter) -> Iterator[ast.expr]:
    """What the model is given in a loop, and what that is bound to there."""
    calls = dict.fromkeys(
        node
        for event in run.of("forward")
        if event.grad and any(each.node is loop.node for each in event.loops)
        for node in _calls_in(loop, event)
    )
    names = {n.id for call in calls for n in walk(call) if isinstance(n, ast.Name)}
    for call in calls:
        for given in (*call.args, *(each.value for each in call.keywords)):
            yield from (each for each in walk(given) if isinstance(each, ast.expr))
    for node in walk(loop.node):
        if isinstance(node, ast.Assign) and any(
            isinstance(n, ast.Name) and n.id in names for target in node.targets for n in walk(target)
        ):
            yield from (each for each in walk(node.value) if isinstance(each, ast.expr))
    if isinstance(loop.node, ast.For):
        yield from (each for each in walk(loop.node.iter) if isinstance(each, ast.expr))


def _calls_in(loop: Loop, event: Event) -> Iterator[ast.Call]:
    """The calls of a loop's own text that lead to an event."""
    inside = set(walk(loop.node))
    for node in (event.node, *(call.node for call in event.calls)):
        if isinstance(node, ast.Call) and node in inside:
            yield node


def _is_part(node: ast.expr, loaders: set[tuple[int, Path_]], run: Interpreter) -> bool:
    """`x[i : i + 8]`, `x[order[:8]]`, `x.split(8)`, of rows that a loader hands out."""
    if isinstance(node, ast.Call) and last_name(node.func) in SPLITTING:
        of = _cut_by(node, run)
        return of is not None and _is_of(of, loaders, run)
    if not isinstance(node, ast.Subscript) or not _is_of(node.value, loaders, run):
        return False
    key = first_index(node)
    if isinstance(key, ast.Slice):
        return key.lower is not None or key.upper is not None
    value = run.values.get(key, NOTHING)
    drawn = any(isinstance(each, Draw) for each in value.origins)
    return not isinstance(key, ast.Constant) and (drawn or not value.spread.is_local and bool(value.origins))


def _cut_by(call: ast.Call, run: Interpreter) -> ast.expr | None:
    """What a call cuts into pieces: `x.split(8)`, `torch.split(x, 8)`"""
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    if base is not None and not run.is_alike(base):
        return base
    return call.args[0] if call.args else base


def _is_of(node: ast.expr, loaders: set[tuple[int, Path_]], run: Interpreter) -> bool:
    """Whether rows are those of a loader's batch, and no model's output."""
    value = run.values.get(node, NOTHING)
    rows = run.has_rows(node) and not value.things and not modules_behind(run, node)
    return rows and any(isinstance(each, Object) and each.key in loaders for each in value.origins)
