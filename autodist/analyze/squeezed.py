"""`squeeze()` without an axis: it drops that of the samples as well, where a rank has a single one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models import modules_behind
from autodist.rule import Severity
from autodist.script import Concern, Loader, Site
from autodist.solve.kinds import is_array
from autodist.source import operands
from autodist.values import NOTHING, Object, Value

FEW = 8
"""As many ranks are common: of batches of this size each has one sample."""


def columns(run: Interpreter) -> list[Site]:
    """Where a rank's samples lie along the first of two axes, so that the other one can be named."""
    return [Site(events[0].source, node) for node, events in _by_node(run).items() if _is_column(node, events, run)]


def in_small_batches(run: Interpreter, loaders: Iterable[Loader], named: Iterable[Site]) -> Iterator[Concern]:
    """The others, where batches are so small that a rank may have a single sample."""
    known = {site.node for site in named}
    sizes = [(each.object.argument("batch_size", 1) or NOTHING).const for each in loaders]
    if not any(isinstance(size, int) and 1 < size <= FEW for size in sizes):
        return
    for node, events in _by_node(run).items():
        if node not in known and _axes(node, run) not in (1, 0):
            message = (
                "drops the axis of the samples as well where a rank has a single one, as of a batch of as many samples "
                "as there are ranks: name the axis, `squeeze(1)`"
            )
            yield Concern("AD208", events[0].source, node, message, Severity.WARNING)


def _by_node(run: Interpreter) -> dict[ast.AST, list[Event]]:
    found: dict[ast.AST, list[Event]] = {}
    for event in run.of("squeezed"):
        found.setdefault(event.node, []).append(event)
    return {node: events for node, events in found.items() if node in run.plan.gathered or run.has_rows(node)}


def _is_column(node: ast.AST, events: list[Event], run: Interpreter) -> bool:
    """Whether there are two axes wherever a script comes there, of a tensor of torch, and never one sample alone:
    evaluations of one sample at a time may want a number."""
    if _axes(node, run) != 2:
        return False
    of_model = bool(modules_behind(run, node))
    if not all(of_model or each.inside_forward or any(_loaders(each.value)) for each in events):
        return False
    if is_array(run.runs.program.at(node)):
        return False
    if events[0].source.function(node) is None:
        return True
    whole = (e for e in run.of("forward") if not e.inside_forward and run.is_given_alike(e.node))
    return all(_are_several(each.detail) for each in whole)


def _axes(node: ast.AST, run: Interpreter) -> int | None:
    given = [e for e in operands(node) if not run.values.get(e, NOTHING).things] if isinstance(node, ast.expr) else []
    return run.axes(given[0]) if given else None


def _are_several(value: Value) -> bool:
    """Whether samples come from loaders that are told of batches of more than one."""
    sizes = [each.argument("batch_size", 1) for each in _loaders(value)]
    return bool(sizes) and all(size is not None and size.const not in (1, None) for size in sizes)


def _loaders(value: Value) -> Iterator[Object]:
    yield from (each for each in value.origins if isinstance(each, Object) and "loader" in each.roles)
