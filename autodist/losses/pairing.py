"""What stands against gathering rows, as far as the values of a run tell.

Which rows a loss needs of all ranks is decided on the program graph (`solve/gathering.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.origins import roots
from autodist.reduction import IN_TRAINING, Reduction
from autodist.source import last_name, operands, walk
from autodist.spread import COUNT, ROWS, SAME
from autodist.values import NOTHING

COUNTING = frozenset("arange range linspace".split())
ROUNDING = frozenset("int round floor ceil trunc".split())
Found = dict[ast.expr, Reduction]


def kept(
    rows: Collection[Reduction],
    before: Interpreter,
    run: Callable[[frozenset[ast.expr]], Interpreter],
) -> tuple[Reduction, ...]:
    """Rows, and numbers of rows, that are to be those of all ranks, where nothing stands against it."""
    found = {each.node: each for each in rows}
    if any(map(before.is_padded, found)):
        return ()  # to the longest of a rank's own
    return in_training(rows, run(frozenset(found)))


def in_training(reductions: Iterable[Reduction], run: Interpreter) -> tuple[Reduction, ...]:
    """Those that are needed, told apart where evaluation comes to the same place, in which every rank has all data."""
    seen = run.of("gathered")
    trained = {event.node for event in seen if event.grad and event.value.spread in (ROWS, COUNT)}
    evaluated = {event.node for event in seen if not event.grad or _is_switched(event)}
    return tuple(
        replace(each, switch=IN_TRAINING if each.node in evaluated else None)
        for each in reductions
        if each.node in trained
    )


def doubled(run: Interpreter) -> Event | None:
    """Where data that every rank has in full come to, with gradients on, and are gathered as a rank's share is."""
    seen = [event for event in run.of("gathered") if event.grad]
    trained = {event.node for event in seen if event.value.spread in (ROWS, COUNT)}
    whole = [e for e in seen if e.node in trained and e.value.spread is SAME and not run.is_gathered(e.value)]
    return next((event for event in whole if not _is_switched(event)), None)


def _is_switched(event: Event) -> bool:
    """Whether something stands below `with torch.set_grad_enabled(phase == "train"):`."""
    places = [(event.source, event.node), *((call.source, call.node) for call in event.calls if call.node is not None)]
    blocks = (each for source, node in places for each in source.ancestors(node) if isinstance(each, ast.With))
    asked = (item.context_expr for block in blocks for item in block.items)
    return any(isinstance(each, ast.Call) and last_name(each.func) == "set_grad_enabled" for each in asked)


def wanted_whole(run: Interpreter) -> set[ast.expr]:
    """What tensors are shaped by that meet the rows of all ranks."""
    return {
        each
        for event in run.of("met")
        if isinstance(event.node, ast.expr)
        for operand in operands(event.node)
        if run.values.get(operand, NOTHING).spread.is_local
        for each in (*walk(operand), *roots(operand, run, set()))
        if isinstance(each, ast.expr)
    }
