"""Data sets whose length changes after a loader for them is made: pairs drawn anew, samples that are collected."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.interpreter import Event, Interpreter
from autodist.source import walk
from autodist.values import Object

OF_LIBRARIES = frozenset("indices tensors samples".split())
"""What the length of a data set of torch and torchvision is the length of."""


def changes_length(loader: Object, passes: Iterable[Event], run: Interpreter) -> bool:
    """Whether what the length of a loader's data set depends on changes between its making and one of its passes."""
    given = loader.argument("dataset", 0)
    datasets = [thing for thing in given.things if isinstance(thing, Object)] if given is not None else []
    lengths = {dataset.key: _length(dataset) for dataset in datasets}
    changes = [
        event.order
        for event in run.of("refill")
        if any(isinstance(t, Object) and event.detail.const in lengths.get(t.key, ()) for t in event.value.things)
    ]
    made = [e.order for e in (*run.of("loader"), *run.of("make")) if any(t is loader for t in e.value.things)]
    for each in passes if changes else ():
        last = max((order for order in made if order < each.order), default=each.order)
        if any(last < order < each.order for order in changes):
            return True
    return False


def _length(dataset: Object) -> frozenset[str]:
    """The attributes that the length of a data set is computed from."""
    if dataset.cls is None or not dataset.cls.find("__len__"):
        return OF_LIBRARIES
    return frozenset(
        node.attr
        for function in (each.node for each in dataset.functions("__len__"))
        for node in walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if function.args.args and node.value.id == function.args.args[0].arg
    )
