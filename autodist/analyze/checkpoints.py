"""Checkpoints that models are loaded from, and their keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Model, Site
from autodist.values import Object, Wrapped


def prefixed_keys(run: Interpreter, models: list[Model]) -> Iterator[Event]:
    """Checkpoints with the keys of `nn.DataParallel` that meet a model which is not wrapped yet: with `strict=False`
    nothing of them would be loaded, in silence."""
    for model in models:
        if not model.data_parallel or not model.moved_later:
            continue
        place = model.moved_later[-1].node  # it is wrapped there
        orders = [event.order for event in run.events if event.node is place]
        for event in (*run.of("model_load_state_dict"), *run.of("model_state_dict")):
            held = [t.module for t in event.value.things if isinstance(t, Wrapped)]
            prefixed = any(isinstance(each, Object) and each.key == model.object.key for each in held)
            if prefixed and orders and event.order < min(orders):
                yield event


def checkpoint(event: Event) -> Site | None:
    """`checkpoint["model"]` of `model.load_state_dict(checkpoint["model"])`: the prefix can be taken from its keys."""
    if event.kind != "model_load_state_dict" or not isinstance(event.node, ast.Call) or not event.node.args:
        return None
    return Site(event.source, event.node.args[0])


def lost_prefixes(events: list[Event]) -> Iterator[Concern]:
    """The others, which cannot be loaded before the model is wrapped."""
    for event in events:
        if checkpoint(event) is None:
            message = (
                "nn.DataParallel puts `module.` before the keys of this checkpoint, and the model can only be "
                "wrapped further down: move this line below the one that moves the model to its device"
            )
            yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
            return
