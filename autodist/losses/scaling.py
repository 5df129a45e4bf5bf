"""What is scaled by how many samples a batch has, beside sums and means: `self.out(x) / x.size(0)`.

A rank has a share of the samples only. Where what is scaled goes on through a loss that is not linear, the number is to
be that of all ranks.
"""

from __future__ import annotations

import ast

from autodist.interpreter import Event, Interpreter
from autodist.origins import learnt_from, roots
from autodist.script import Reduction
from autodist.source import Source, counted_of, last_name, walk
from autodist.spread import COUNT, SAME
from autodist.values import NOTHING

IN_TRAINING = "torch.is_grad_enabled()"


def counts(run: Interpreter) -> tuple[Reduction, ...]:
    """The numbers of samples that are to be those of all ranks, told apart where evaluation comes to the same place,
    in which every rank has all data."""
    found = []
    for events in _scaled(run).values():
        first, others = events[0], [each for each in events if not _is_share(each)]
        apart = all(not each.grad and each.value.spread is SAME for each in others)
        shares = all(not each.grad and each.value.spread is COUNT for each in others)
        if isinstance(first.node, ast.expr) and (apart or shares):
            found.append(Reduction(first.source, first.node, COUNT, switch=None if shares else IN_TRAINING))
    return tuple(found)


def _scaled(run: Interpreter) -> dict[ast.AST, list[Event]]:
    """What losses are computed from that is scaled by a rank's number of samples, by where that is read; training
    first."""
    events = run.of("scaled")
    if not any(map(_is_share, events)):
        return {}
    apart = {event.node for event in run.of("scaled_apart") if event.grad}
    made = {each for node in apart for each in (node, *_parts(node, run))}
    learnt = learnt_from(run)
    told = [each for each in events if _is_share(each) and _is_counted(each.node, run)]
    wanted = {each.node for each in told if _is_wanted(each, made) and _is_learnt(each, learnt)}
    found: dict[ast.AST, list[Event]] = {}
    for event in sorted(events, key=lambda each: not _is_share(each)):
        if event.node in wanted:
            found.setdefault(event.node, []).append(event)
    return found


def _is_share(event: Event) -> bool:
    return event.grad and event.value.spread is COUNT


def _is_counted(node: ast.AST, run: Interpreter, depth: int = 4) -> bool:
    """Whether the source says that it is the number of samples: `x.size(0)`, or a name of it."""
    if not isinstance(node, ast.expr) or not depth:
        return False
    counted = counted_of(node)
    if counted is not None:
        return not run.values.get(counted, NOTHING).things  # of a tensor, no list
    if not isinstance(node, ast.Name):
        return False
    made = [each for _, each in run.values.get(node, NOTHING).made]
    return all(_is_counted(each, run, depth - 1) for each in made) if made else _is_unpacked(node, run.sources[node])


def _is_unpacked(name: ast.Name, source: Source) -> bool:
    """`n, channels = x.shape`"""
    bound = [each for each in walk(source.home(name)) if isinstance(each, ast.Assign)]
    stored = [
        each.value
        for each in bound
        if any(isinstance(n, ast.Name) and n.id == name.id for t in each.targets for n in walk(t))
    ]
    sizes = (each.func if isinstance(each, ast.Call) and not each.args else each for each in stored)
    return bool(stored) and all(last_name(each) in ("shape", "size") for each in sizes)


def _is_wanted(event: Event, apart: set[ast.AST]) -> bool:
    """Whether what is scaled is no division that makes a mean of a sum."""
    operation = event.detail.const
    return not _divides(operation) or operation in apart


def _divides(operation: object) -> bool:
    """Whether what is divided is told apart from what it is added up to."""
    if isinstance(operation, ast.Call):
        return isinstance(operation.func, (ast.Name, ast.Attribute)) and "mul" not in ast.unparse(operation.func)
    return isinstance(operation, ast.BinOp) and isinstance(operation.op, ast.Div)


def _is_learnt(event: Event, learnt: frozenset[ast.expr]) -> bool:
    operation = event.detail.const
    around = (operation, event.source.statement(operation))
    return event.inside_forward or any(part in learnt for each in around for part in walk(each))


def _parts(node: ast.AST, run: Interpreter) -> set[ast.AST]:
    """What something is computed from."""
    made = roots(node, run, set()) if isinstance(node, ast.expr) else set()
    return {part for each in (node, *made) for part in walk(each)}
