"""Patterns of forward passes that DistributedDataParallel does not synchronise."""

from __future__ import annotations

import ast

from autodist.interpreter import Event, Interpreter
from autodist.models.history import History, freezes, grows, happens_during_training
from autodist.models.parts import unwrapped
from autodist.program import Operation, closure, held
from autodist.regions import exclusive
from autodist.solve.learned import learned
from autodist.solve.steps import given
from autodist.values import Object


def pattern_of(module: Object, history: History) -> str | None:
    """Orders of forward and backward passes that DistributedDataParallel does not synchronise."""
    last: Event | None = None
    forward: Event | None = None
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    for event in sorted(passes, key=lambda e: e.order):
        if event.kind == "forward":
            last, forward = None, event
            continue
        other = last if last is not None and last.node is not event.node else None
        twice = other is not None and not exclusive(event.source, event.node, other.node)
        if twice or forward is not None and _repeats(event, forward):
            return (
                "it goes through backward twice after one forward, which DistributedDataParallel leaves unsynchronised"
            )
        last = event
    return None


def _repeats(backward: Event, forward: Event) -> bool:
    """Whether a loop of its own is around a backward pass: `for loss in losses: loss.backward(retain_graph=True)`."""
    around = {loop.node for loop in forward.loops}
    kept = isinstance(backward.node, ast.Call) and any(k.arg == "retain_graph" for k in backward.node.keywords)
    return kept and any(loop.node not in around for loop in backward.loops)


def parts_by_turns(module: Object, run: Interpreter, history: History) -> str | None:
    """Whether several forward passes of one step may run different parts: the wrapper looks for unused parameters in
    the last of them alone."""
    before: list[Event] = []
    shown: set[Event] = set()
    evaluates = False
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    modes = [each for each in run.of("mode") if module in unwrapped(each.value)]
    for event in sorted([*passes, *modes], key=lambda e: e.order):
        if event.kind == "mode":
            evaluates = event.detail.const is True
            continue
        if event.kind == "forward":
            before.append(event)
            shown |= {event} if evaluates else set()
            continue
        if before and before[-1] not in shown:  # what it gave in evaluations, gradients on, was only shown
            computed = _computed_by(event, run) if shown else set[Operation]()
            before = [each for each in before if each not in shown or _gave(each, computed, run)]
        loops = {loop.node for loop in event.loops}
        ahead = {each for each in before if loops and not each.loops}  # as one that has lazy layers made
        if ahead:
            computed = _computed_by(event, run)
            before = [each for each in before if each not in ahead or _gave(each, computed, run)]
        again = any(loop.node not in loops for each in before for loop in each.loops)
        pairs = ((one, other) for at, one in enumerate(before) for other in before[:at] if one.node is not other.node)
        if again or any(not exclusive(one.source, one.node, other.node) for one, other in pairs):
            if learned(run.runs.program).varies(module.node):
                return "it runs other parts in each of several forward passes before one backward pass"
        before = []
    return None


def _computed_by(backward: Event, run: Interpreter) -> set[Operation]:
    """What a loss was computed by."""
    return closure(run.runs.program.made_at.get(backward.node, ()), given)


def _gave(forward: Event, computed: set[Operation], run: Interpreter) -> bool:
    """Whether what a forward pass gave is among what a loss was computed by."""
    return not computed.isdisjoint(held(run.runs.program.at(forward.node)))


def learns_by_gradients_alone(module: Object, run: Interpreter, history: History) -> str | None:
    """Whether a step's only loss is one of gradients with regard to samples: the wrapper would wait for the gradient of
    a last bias, which has no say in it, though the forward pass has used it. It also finds no such bias unused."""
    backwards = history.backwards.get(module, [])
    if any(learned(run.runs.program).learns_from_derivatives(event.node) for event in backwards):
        return "it learns from its derivatives alone, in which a last bias has no say, whose gradient it would wait for"
    return None


def changes(module: Object, history: History) -> str | None:
    """Whether parameters are frozen or released during training, which the wrapper does not notice."""
    if happens_during_training(freezes(module, history), module, history):
        return "its parameters are frozen or released during training, which DistributedDataParallel does not notice"
    if happens_during_training(grows(module, history), module, history):
        return "it is given further layers during training, which DistributedDataParallel does not notice"
    return None
