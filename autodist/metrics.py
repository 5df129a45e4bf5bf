"""Metrics of libraries that add up over the ranks what each of them has been given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.script import Site
from autodist.values import Items, Object, Table, Value

COUNTING = re.compile(
    r"torchmetrics\.(?:\w+\.)*(?:\w*(?:ConfusionMatrix|StatScores|InceptionDistance)|SumMetric|CatMetric|Retrieval\w+)"
)
"""Those of torchmetrics whose results are others where each sample counts several times; of means they are not."""


def counting_whole(run: Interpreter) -> tuple[Site, ...]:
    """Where metrics are made that every rank gives all samples, as an evaluation does that is not shared out."""
    given: dict[Object, list[Event]] = {}
    for event in run.of("measured"):
        for metric in _inside(event.detail):
            given.setdefault(metric, []).append(event)
    return tuple(
        Site(metric.source, metric.node)
        for metric, events in given.items()
        if isinstance(metric.node, ast.Call) and COUNTING.fullmatch(metric.name)
        if "sync_on_compute" not in metric.keywords and all(run.is_given_alike(event.node) for event in events)
    )


def _inside(value: Value, depth: int = 3) -> Iterator[Object]:
    """Metrics, and those in collections of them."""
    for thing in value.things if depth else ():
        if isinstance(thing, Object):
            yield thing
            held = thing.args if thing.name.endswith("MetricCollection") else []
        elif isinstance(thing, Items):
            held = [*thing.parts, thing.element]
        else:
            held = [*thing.entries.values(), thing.element] if isinstance(thing, Table) else []
        for each in held:
            yield from _inside(each, depth - 1)
