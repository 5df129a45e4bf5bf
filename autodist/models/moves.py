"""Moves of modules to a device, which DistributedDataParallel does not survive: it goes on averaging the gradients of
parameters that are no more, and says nothing. On the CPU nothing moves, so that no run there shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models.parts import parts, unwrapped
from autodist.rule import Severity
from autodist.script import Concern
from autodist.values import External, Object, Wrapped

TO_DEVICE = ("cuda", "to", "xpu", "mps", "npu")


def is_to_device(event: Event, run: Interpreter) -> bool:
    """`model.cuda()` or `model.to(device)`, not `model.to(torch.float16)` or `model.to("cpu")`."""
    call = event.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in TO_DEVICE:
        return False
    if call.func.attr != "to":
        return True
    given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "device")]
    return any(not _is_type(each, run) and not _is_cpu(each, run) for each in given)


def moved_before_use(module: Object, since: int, first: int, run: Interpreter) -> Iterator[Event]:
    """Where a module, or a wrapper around it, goes to a device, after event ``since`` and before ``first``."""
    for event in run.of("move"):
        if since < event.order < first and module in unwrapped(event.value) and is_to_device(event, run):
            yield event


def moved_too_late(models: Iterable[Object], run: Interpreter) -> Iterator[Concern]:
    """Where a run that has wrapped them moves models for the first time after that."""
    keys = {module.key for module in models}
    placed: set[object] = set()
    used = {each.key for e in run.of("forward") if e.grad for each in unwrapped(e.value) if isinstance(each, Object)}
    seen: set[object] = set()
    for event in run.events:
        if event.kind == "forward" and event.grad:
            seen |= {each.key for each in unwrapped(event.value) if isinstance(each, Object)} & used
        if event.kind != "move" or not is_to_device(event, run):
            continue
        for thing in event.value.things:
            around = isinstance(thing, Wrapped) and thing.kind == "planned"
            module = thing.module if isinstance(thing, Wrapped) else thing
            if not isinstance(module, Object):
                continue
            own = {part.key for part in parts(module)}
            if around and module.key in keys and module.key not in seen and placed.isdisjoint(own):
                message = (
                    "is moved to its device after DistributedDataParallel has taken hold of its parameters, and its "
                    "gradients would no longer be averaged: move it where it is made, or before it is first used"
                )
                yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
            placed |= own


def _is_type(node: ast.expr, run: Interpreter) -> bool:
    """`torch.float16`"""
    known = run.values.get(node)
    things = known.things if known is not None else ()
    names = [each.name for each in things if isinstance(each, External)]
    return any(name.startswith("torch.") and name != "torch.device" for name in names)


def _is_cpu(node: ast.expr, run: Interpreter) -> bool:
    known = run.values.get(node)
    if known is not None and known.const == "cpu":
        return True
    return isinstance(node, ast.Call) and [ast.unparse(each) for each in node.args] == ["'cpu'"]
