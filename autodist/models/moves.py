"""Moves of modules to a device, which DistributedDataParallel does not survive: it goes on averaging the gradients of
parameters that are no more, and says nothing. On the CPU nothing moves, so that no run there shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autodist.interpreter import Event, Interpreter
from autodist.models.parts import parts, unwrapped
from autodist.program import EMPTY, Value, joined
from autodist.regions import stands_in, within
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.source import last_name
from autodist.trace.things import Object as Made
from autodist.values import NOTHING, External, Object

TO_DEVICE = ("cuda", "to", "xpu", "mps", "npu")
TO_TYPE = ("half", "double", "bfloat16")


def is_to_device(event: Event, run: Interpreter) -> bool:
    """`model.cuda()` or `model.to(device)`, not `model.to(torch.float16)` or `model.to("cpu")`."""
    call = event.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in TO_DEVICE:
        return False
    return call.func.attr != "to" or any(not _is_type(each, run) and not _is_cpu(each, run) for each in _asked(call))


def moved_before_use(module: Object, since: int, first: int, run: Interpreter) -> Iterator[Event]:
    """Where a module, or a wrapper around it, goes to a device or becomes another type, after event ``since`` and
    before ``first``."""
    for event in run.of("move"):
        if since < event.order < first and module in unwrapped(event.value):
            if is_to_device(event, run) or last_name(getattr(event.node, "func", event.node)) in TO_TYPE:
                yield event


def moved_too_late(models: Iterable[Object], run: Interpreter) -> Iterator[Concern]:
    """Where models, or parts of them, move for the first time after they were wrapped, in the place that is planned or
    by the script itself."""
    return (too_late(late) for late in late_moves(models, run))


@dataclass(frozen=True)
class LateMove:
    """A model that moves after it was wrapped: the events, and what the move does."""

    move: Event
    wrap: Event
    what: str


def late_moves(models: Iterable[Object], run: Interpreter) -> Iterator[LateMove]:
    """The same as events."""
    keys = {module.key for module in models}
    placed: set[object] = set()
    waiting: dict[object, tuple[Event, set[object]]] = {}
    """Where models were wrapped that were not used yet, and what they consist of."""
    for event in (each for each in run.events if each.kind in ("wrapped", "wrap", "forward", "move")):
        things = [each for each in unwrapped(event.value) if isinstance(each, Object)]
        if event.kind == "wrapped" or event.kind == "wrap" and event.detail.const == "ddp":
            waiting |= {each.key: (event, {part.key for part in parts(each)}) for each in things if each.key in keys}
        elif event.kind == "forward" and event.grad:
            waiting = {key: held for key, held in waiting.items() if key not in {each.key for each in things}}
        elif event.kind == "move":
            moved = held_by(event)
            wraps = [
                wrap for wrap, own in waiting.values() if not moved.isdisjoint(own) and not _is_instead(event, wrap)
            ]
            if is_to_device(event, run):
                if wraps and placed.isdisjoint(moved):
                    yield LateMove(event, wraps[0], "is moved to its device")
                placed |= moved
            elif wraps and wraps[0].kind == "wrap" and _changes_type(event):
                yield LateMove(event, wraps[0], "becomes another type")


def too_late(late: LateMove) -> Concern:
    """Why that cannot stay as it is."""
    move, wrap, what = late.move, late.wrap, late.what
    message = (
        f"{what} after DistributedDataParallel has taken hold of its parameters, and its gradients would no longer be "
        "averaged: move it where it is made, or before it is first used"
    )
    if wrap.kind == "wrap":
        message = (
            f"{what} after DistributedDataParallel has taken hold of its parameters in line "
            f"{getattr(wrap.node, 'lineno', 0)}, and its gradients are no longer averaged: do that before it is wrapped"
        )
    return Concern("AD904", move.source, move.node, message, Severity.REFUSAL)


def _changes_type(event: Event) -> bool:
    """`model.half()`"""
    return last_name(getattr(event.node, "func", event.node)) in TO_TYPE


def _is_instead(move: Event, wrap: Event) -> bool:
    """Whether a condition decides between the two: `if distributed: net = DDP(net)`, `else: net.cuda()`."""
    for around in (each for each in wrap.source.ancestors(wrap.node) if isinstance(each, ast.If)):
        inside = stands_in(wrap.source, wrap.node, frozenset(around.body))
        if within(move, frozenset(around.orelse if inside else around.body)):
            return True
    return False


def _is_type(node: ast.expr, run: Interpreter) -> bool:
    """`torch.float16`"""
    names = [each.name for each in run.values.get(node, NOTHING).things if isinstance(each, External)]
    return any(name.startswith("torch.") and name != "torch.device" for name in names)


def _is_cpu(node: ast.expr, run: Interpreter) -> bool:
    """`"cpu"`, or a device that is the CPU whatever branch made it."""
    known = run.runs.program.at(node)
    made = [each for each in known.things if isinstance(each, Made) and "device" in each.roles]
    named = [each.argument("type", 0) or EMPTY for each in made] if len(made) == len(known.things) else []
    told = joined([Value(known.operations, known.constants), *named])
    return told.is_constant and told.constant == "cpu"


def _asked(call: ast.Call) -> list[ast.expr]:
    """What `to()` is told to move to."""
    return [*call.args[:1], *(each.value for each in call.keywords if each.arg == "device")]


@dataclass(frozen=True)
class Shuttles:
    """Moves of wrapped models to the CPU and back between steps: ``calls`` that bring them there, and the ``states``
    that are read there."""

    calls: tuple[Site, ...] = ()
    states: tuple[Site, ...] = ()
    concerns: tuple[Concern, ...] = ()


def shuttles(models: Iterable[Object], run: Interpreter) -> Shuttles:
    """`model.cpu()`, to save it, and `model.to(device)`, to go on, which end averaging as a late move does. So does
    what moves a part of a model, or the module that it is a part of."""
    trained = list({module.key: module for module in models}.values())
    calls: dict[ast.AST, Site] = {}
    states: dict[ast.AST, Site] = {}
    concerns: dict[ast.AST, Concern] = {}
    moves = [event for event in run.of("move") if not event.inside_forward]
    for event in moves:
        if not is_to_cpu(event, run):
            continue
        moved = held_by(event)
        for module in (each for each in trained if not moved.isdisjoint(part.key for part in parts(each))):
            rounds = {loop.node for e in run.of("forward") if e.grad and _is_of(e, module) for loop in e.loops}
            if rounds.isdisjoint(loop.node for loop in event.loops):
                continue  # it has been trained
            back = [e for e in moves if e is not event and not moved.isdisjoint(held_by(e)) and is_to_device(e, run)]
            back = [e for e in back if not rounds.isdisjoint(loop.node for loop in e.loops)]
            if not back:
                continue
            until = min((e.order for e in back if e.order > event.order), default=len(run.events))
            between = [e for e in run.events if event.order < e.order < until and not moved.isdisjoint(_named(e))]
            calls[event.node] = Site(event.source, event.node)
            states |= {e.node: Site(e.source, e.node) for e in between if e.kind == "model_state_dict"}
            if any(e.kind == "forward" for e in between):
                message = (
                    "runs on the CPU between training steps, and after that DistributedDataParallel no longer averages "
                    "its gradients: leave it on its device, and move the data there"
                )
                concerns[event.node] = Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
    return Shuttles(tuple(calls.values()), tuple(states.values()), tuple(concerns.values()))


def _named(event: Event) -> set[object]:
    """The modules that an event is about, without what they consist of."""
    return {each.key for each in unwrapped(event.value) if isinstance(each, Object)}


def held_by(event: Event) -> set[object]:
    """The modules that an event is about, and what they consist of."""
    return {part.key for each in unwrapped(event.value) if isinstance(each, Object) for part in parts(each)}


def is_to_cpu(event: Event, run: Interpreter) -> bool:
    """`model.cpu()` or `model.to("cpu")`"""
    call = event.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr == "cpu" or call.func.attr == "to" and any(_is_cpu(each, run) for each in _asked(call))


def _is_of(event: Event, module: Object) -> bool:
    return any(isinstance(each, Object) and each.key == module.key for each in unwrapped(event.value))
