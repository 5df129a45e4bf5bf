"""Through which modules gradients flow, asked of the graph, as the objects of a run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from autodist.interpreter import Call_, Event, Interpreter, once_a_run
from autodist.models.parts import unwrapped
from autodist.program import Operation, Region
from autodist.solve.forward import Pass, forward_passes
from autodist.values import NOTHING, Object


@once_a_run
def modules_behind(run: Interpreter, node: ast.AST) -> frozenset[Object]:
    """The modules from whose forward passes an expression comes, with gradients: not from those that run in others."""
    program = run.runs.program
    return _objects(forward_passes(program).behind(program.at(node).operations), run)


def differentiated(run: Interpreter, event: Event) -> frozenset[Object]:
    """The modules that a backward pass goes back through: those of `loss.backward()`, as it is called there."""
    passes = forward_passes(run.runs.program)
    found = _objects((each for op in _operations(event, run) for each in passes.differentiated(op)), run)
    return found | _passed_by(event, run)


def _passed_by(event: Event, run: Interpreter) -> frozenset[Object]:
    """The modules that run ahead of a backward pass in its loop, and of which the graph has no pass there: a setting,
    which may be another one tomorrow, decides against them, or it is not followed how the code is found."""
    program, loop = run.runs.program, event.loops[-1].node if event.loops else None
    ahead = (each for each in run.of("forward") if each.order < event.order and each.grad)
    past = [each for each in ahead if not program.at(each.node)]
    past = [each for each in past if loop is None or any(around.node is loop for around in each.loops)]
    return frozenset(each for one in past for each in unwrapped(one.value) if isinstance(each, Object))


def _operations(event: Event, run: Interpreter) -> list[Operation]:
    """What the graph has of an event: its operations in the function that is called in the same way."""
    made = run.runs.program.made_at.get(event.node, ())
    alike = {op: _agreement(op.region, event.calls) for op in made}
    return [op for op in made if alike[op] == max(alike.values())]


def _agreement(region: Region, calls: Sequence[Call_], within: int = 40) -> int:
    """How many calls lead to a region that also lead to an event, from the innermost."""
    if not calls or not within:
        return 0
    around = [*([region.parent] if region.parent is not None else []), *region.others]
    if region.function is None:
        return max((_agreement(each, calls, within - 1) for each in around), default=0)
    if region.node is not calls[-1].node:
        return 0
    return 1 + max((_agreement(each, calls[:-1], within - 1) for each in around), default=0)


def _objects(passes: Iterable[Pass], run: Interpreter) -> frozenset[Object]:
    return frozenset(each for one in dict.fromkeys(passes) for each in _objects_of(one, run))


def _objects_of(one: Pass, run: Interpreter) -> list[Object]:
    """The modules that are made where one is: of several, by one function, those that are called there."""
    called = _modules(getattr(one.node, "func", None), run)
    if one.module is None:
        return called
    made = (called, _modules(one.module.node, run))
    alike = ([each for each in modules if each.node is one.module.node] for modules in made)
    return next(filter(None, alike), [])


def _modules(node: ast.AST | None, run: Interpreter) -> list[Object]:
    things = unwrapped(run.values.get(node, NOTHING)) if isinstance(node, ast.expr) else ()
    return [each for each in things if isinstance(each, Object) and each.roles & {"module", "loss"}]
