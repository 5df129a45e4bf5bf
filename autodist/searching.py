"""Searches of hyperparameters that train a model for each trial: ranks must try the same ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Search, Site
from autodist.source import argument
from autodist.values import NOTHING, Object


def searches(run: Interpreter) -> Iterator[Search]:
    """The studies and samplers of optuna that draw from a generator of their own, which nobody seeds."""
    for made in _made(run, "study"):
        given = made.keywords.get("sampler", NOTHING)
        if "**" not in made.keywords and ("sampler" not in made.keywords or given.const is None):
            several = made.keywords["directions"].const is not None if "directions" in made.keywords else False
            yield Search(Site(made.source, made.node), "NSGAIISampler" if several else "TPESampler")
    for made in _made(run, "study_sampler"):
        if "**" not in made.keywords and ("seed" not in made.keywords or made.keywords["seed"].const is None):
            yield Search(Site(made.source, made.node))


def concerns(run: Interpreter) -> Iterator[Concern]:
    """What ranks would do apart although they draw alike."""
    if not run.of("backward"):
        return
    for made in _made(run, "study"):
        if "storage" in made.keywords and made.keywords["storage"].const is not None:
            message = (
                "every rank would add its trials to the storage of this study, and be told those of all: search in "
                "memory, or by optuna_integration.TorchDistributedTrial"
            )
            yield Concern("AD902", made.source, made.node, message, Severity.REFUSAL)
            return
    for event in run.of("search"):
        if isinstance(event.node, ast.Call) and argument(event.node, "timeout", 2) is not None:
            message = (
                "ends when the clock of each rank says so: should one begin a trial that another does not, it waits "
                "for ever; say how many trials there are instead (n_trials)"
            )
            yield Concern("AD902", event.source, event.node, message, Severity.WARNING)


def _made(run: Interpreter, role: str) -> Iterator[Object]:
    events: list[Event] = run.of("make")
    found = {thing for event in events for thing in event.value.objects(role)}
    yield from sorted(found, key=lambda each: (each.node.lineno, each.node.col_offset))
