"""What stands against gathering rows, as far as the values of a run tell.

Which rows a loss needs of all ranks is decided on the program graph (`solve/gathering.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.losses.folding import is_folded
from autodist.origins import roots
from autodist.script import Reduction
from autodist.source import all_of, first_index, last_name, operands, walk
from autodist.spread import COUNT, ROWS, SAME
from autodist.tensors.picking import tells_places
from autodist.values import NOTHING, Gathered, Index, Object, Value

COUNTING = frozenset("arange range linspace".split())
ROUNDING = frozenset("int round floor ceil trunc".split())
Found = dict[ast.expr, Reduction]


def kept(
    rows: Collection[Reduction],
    before: Interpreter,
    run: Callable[[frozenset[ast.expr]], Interpreter],
    paired: bool = False,
) -> tuple[Reduction, ...]:
    """Rows, and numbers of rows, that are to be those of all ranks, where nothing stands against it. Where samples are
    ``paired``, it does not matter which comes first."""
    found = {each.node: each for each in rows}
    unknown = {event.node for event in before.of("unfollowed")}
    if any(not unknown.isdisjoint({*walk(node), *roots(node, before, set())}) for node in found):
        return ()  # of samples that have met, for all that is known
    if any(map(before.is_padded, found)):
        return ()  # to the longest of a rank's own
    current = run(frozenset(found))
    if _is_in_vain(current) or any(_is_numbered(node, current) for node in current.values):
        return ()
    if not paired and _goes_by_places(found, before, current):
        return ()  # several rows of each sample, in another order than in the batch
    return in_training(_together(rows, before), current)


def _together(reductions: Iterable[Reduction], run: Interpreter) -> list[Reduction]:
    """The same, which say if several rows of each sample stand beside each other."""
    together = any(is_folded(each.node, run, certain=True) for each in reductions)
    return [replace(each, together=together) for each in reductions]


def _goes_by_places(found: Found, before: Interpreter, run: Interpreter) -> bool:
    """Whether of rows, of which several may be made of each sample, it matters which place each has: where they are
    counted, cut, or laid beside their neighbours, and not where the largest are chosen of them."""
    if not any(is_folded(node, before) for node in found):
        return False
    counted = any(isinstance(each, ast.Call) and _is_counted(each, before) for each in before.values)
    return counted or any(isinstance(each, ast.Subscript) and _is_gathered_cut(each, run) for each in run.values)


def _is_counted(node: ast.Call, run: Interpreter) -> bool:
    """`torch.arange(len(errors))`"""
    given = [node.args[0]] if node.args and last_name(node.func) in COUNTING else []
    return any(run.values.get(each, NOTHING).spread is COUNT for each in given)


def _is_gathered_cut(node: ast.Subscript, run: Interpreter) -> bool:
    """`errors[1:]`, of those of all ranks"""
    return run.is_gathered(run.values.get(node.value, NOTHING)) and tells_places(node.slice)


def _is_in_vain(run: Interpreter) -> bool:
    """Whether what is gathered already makes no loss exact, and will not if more is: noise is drawn for it, or a layer
    is given it, as by attention from sample to sample; a rank would compute what follows for all of them."""
    return bool(run.of("noise_for_gathered")) or any(_goes_into_layer(node, run) for node in run.values)


def _goes_into_layer(node: ast.expr, run: Interpreter) -> bool:
    """Whether a layer is given rows of all ranks."""
    if not isinstance(node, ast.Call):
        return False
    layers = [t for t in run.values.get(node.func, NOTHING).things if isinstance(t, Object) and t.cls is None]
    trained = any("module" in each.roles and "loss" not in each.roles and each.args for each in layers)
    return trained and any(_holds_gathered(run.values.get(each, NOTHING), run) for each in node.args)


def _holds_gathered(value: Value, run: Interpreter) -> bool:
    """Whether a model is given rows of all ranks, also beside its own: there would be nothing left to share out."""
    return any(isinstance(each, Gathered) and each.node in run.plan.gathered for each in value.origins)


def _is_numbered(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is one of the samples of all ranks, by a number that a loop counts up to how many a rank has:
    `out[i]` of `for i in range(len(labels))`."""
    if not isinstance(node, ast.Subscript) or not run.is_gathered(run.values.get(node.value, NOTHING)):
        return False
    first = first_index(node)
    numbers = all_of(first, ast.Name) if isinstance(first, ast.Slice) else [first]  # `out[i : i + 1]`
    counting = (t.loop for each in numbers for t in run.values.get(each, NOTHING).things if isinstance(t, Index))
    counted = [each for loop in counting if isinstance(loop, ast.Call) for each in loop.args]
    return any(run.values.get(each, NOTHING).spread in (COUNT, ROWS) for each in counted)


def in_training(reductions: Iterable[Reduction], run: Interpreter) -> tuple[Reduction, ...]:
    """Those that are needed, told apart where evaluation comes to the same place, in which every rank has all data."""
    seen = run.of("gathered")
    trained = {event.node for event in seen if event.grad and event.value.spread in (ROWS, COUNT)}
    evaluated = {event.node for event in seen if not event.grad or _is_switched(event)}
    return tuple(
        replace(each, switch="torch.is_grad_enabled()" if each.node in evaluated else None)
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
