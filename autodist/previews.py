"""Passes of data that all ranks have through a model in training mode, as the pictures of a fixed noise in each epoch.

SyncBatchNorm counts such rows once for each rank. Where a call is given tensors of rows and answers with one, each rank
can run its share of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models import members, settled_at, unwrapped
from autodist.placement import Replicate
from autodist.rule import Severity
from autodist.script import Concern, Model, Site, Wrapping
from autodist.solve.losses import Losses
from autodist.solve.steps import steps_of
from autodist.source import all_of, told_once, walk
from autodist.spread import SAME
from autodist.values import NOTHING, UNKNOWN, Object, Wrapped


def passes_in_training(run: Interpreter) -> list[Event]:
    """Calls of models in training mode, outside of what trains them: within loops, or between training and a
    checkpoint. None where a script sets a mode that is known only as it runs."""
    if any(_sets_mode(node, run) for source in run.project.sources for node in all_of(source.tree, ast.Call)):
        return []
    trained = min((event.order for event in run.of("backward")), default=len(run.events))
    saved = max((event.order for event in run.of("save")), default=-1)
    return [event for event in run.of("training_forward") if event.loops or trained < event.order < saved]


def previews(
    passes: list[Event], run: Interpreter, models: list[Model], losses: Losses
) -> tuple[list[Site], list[Concern]]:
    """The passes of which each rank can run its share, and what is said of one that stays as it is."""
    normalised = members(model for model in models if model.batch_norm)
    found = {
        event.node: event
        for event in passes
        if event.detail.spread is SAME
        and _may_be_given_alike(event.node, run)
        and any(each.key in normalised for each in _normalising(event, run))
    }
    mixed = run.plan.joined or any(losses.lost_at())
    mixed = mixed or any(node in run.plan.reduced for event in passes for node in _of_classes(event))  # of even shares
    shared = [event for event in found.values() if not mixed and _is_rows_to_rows(event, run)]
    rest = [event for event in found.values() if event not in shared]
    message = (
        "all ranks pass the same data through BatchNorm in training mode, where SyncBatchNorm counts them once "
        "for each rank: running_var differs slightly from one process's"
    )
    concerns = [Concern("AD602", event.source, event.node, message, Severity.WARNING) for event in rest[:1]]
    return [Site(event.source, event.node) for event in shared], concerns


def _of_classes(event: Event) -> Iterator[ast.AST]:
    """The code of the models of a pass."""
    classes = (each.cls for each in unwrapped(event.value) if isinstance(each, Object) and each.cls is not None)
    return (node for each in classes for node in walk(each.node))


def unsynchronised(passes: list[Event], run: Interpreter, models: list[Model]) -> tuple[list[Wrapping], list[Concern]]:
    """Where models are complete that pass a rank's samples through BatchNorm and do not train, so that nothing wraps
    them, as the slowly following network of a self-supervised method or an average of weights whose statistics are
    computed anew; and what is said of a pass through one of which that is not known."""
    alike = {*members(models), *(each.key for each in _copies_of_wrapped(run))}
    message = (
        "runs this rank's samples through BatchNorm in training mode, in a model that does not train, so that "
        "each rank keeps statistics of its own samples: where it is made, convert it by "
        "nn.SyncBatchNorm.convert_sync_batchnorm"
    )
    found: dict[ast.stmt, Wrapping] = {}
    unknown: list[Event] = []
    for event in passes:
        alone = [e for e in _normalising(event, run) if e.key not in alike and not run.is_given_alike(event.node)]
        places = [settled_at(each, run) for each in alone]
        found.update((place.statement, place) for place in places if place is not None)
        unknown += [event] if None in places else []
    concerns = [Concern("AD602", event.source, event.node, message, Severity.WARNING) for event in unknown[:1]]
    return list(found.values()), concerns


def _copies_of_wrapped(run: Interpreter) -> Iterator[Object]:
    """Deep copies of models that are synchronised by then."""
    for event in run.of("copy"):
        if any(isinstance(thing, Wrapped) and thing.kind == "planned" for thing in event.value.things):
            yield from event.detail.objects("module")


def _may_be_given_alike(call: ast.AST, run: Interpreter) -> bool:
    """Whether all ranks give a call the same, in one of its contexts at least."""
    lying = [run.lies(each) for each in call.args] if isinstance(call, ast.Call) else []
    return all(not each or any(one == Replicate() for one in each) for each in lying)


def _normalising(event: Event, run: Interpreter) -> list[Object]:
    """The models of a pass that have BatchNorm and run in training mode. Where a script sets modes, one that is not
    seen to be put into evaluation mode may be in either."""
    modules = [each for each in unwrapped(event.value) if isinstance(each, Object)]
    known = [each for each in modules if not _tells_mode(run) or each.key in run.once_evaluated]
    return [each for each in known if run.normalises(each)]


def _tells_mode(run: Interpreter) -> bool:
    """Whether something is put into evaluation mode of which it is not known what it is: `get("net").eval()`."""
    for source in run.project.sources:
        if ".eval()" in source.text or ".train(False)" in source.text:
            if any(not _is_known(call.func, run) for call in _evaluating(source.tree)):
                return True
    return False


@told_once
def _evaluating(tree: ast.Module) -> list[ast.Call]:
    return [call for call in all_of(tree, ast.Call) if _evaluates(call)]


def _evaluates(call: ast.Call) -> bool:
    """`model.eval()`, `model.train(False)`"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    quiet = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value is False
    return name == "eval" and not call.args or name == "train" and quiet


def _is_known(method: ast.expr, run: Interpreter) -> bool:
    """Whether it is known whose method is called, or nothing comes to the call."""
    value = run.values.get(method.value) if isinstance(method, ast.Attribute) else None
    return value is None or bool(value.things)


def _sets_mode(node: ast.AST, run: Interpreter) -> bool:
    """`model.train(optimizer is not None)`, and no method of the script's own: `gan.train(loader)`"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "train":
        return False
    told = any(not (isinstance(each, ast.Constant) and each.value is True) for each in node.args[:1])
    things = unwrapped(run.values.get(node.func.value, NOTHING))
    modules = (t for t in things if isinstance(t, Object) and "module" in t.roles)
    return told and any(each.cls is None or each.cls.find("train") is None for each in modules)


def _is_rows_to_rows(event: Event, run: Interpreter) -> bool:
    """Whether a model is given what it has a row of for each sample in training, but always the same on all ranks, and
    gives a tensor of such rows, which no loss is computed from."""
    node = event.node
    if not isinstance(node, ast.Call) or node.keywords or node in steps_of(run.runs.program).expressions:
        return False
    values = [run.values.get(each, NOTHING) for each in (node, *node.args)]
    if any(value.things or value.const is not UNKNOWN for value in values):
        return False
    passes = [each for each in run.of("forward") if each.value == event.value]
    if not run.is_given_alike(node):
        return False
    return any(_takes_rows(each.node, len(node.args), run) for each in passes)


def _takes_rows(node: ast.AST, number: int, run: Interpreter) -> bool:
    """Whether a call is given so many tensors of this rank's samples, and nothing else."""
    if not isinstance(node, ast.Call) or node.keywords or len(node.args) != number:
        return False
    return all(map(run.has_rows, node.args))
