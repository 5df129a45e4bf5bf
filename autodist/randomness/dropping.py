"""Whether a model drops numbers out, by layers of the script or of a library."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from autodist.catalog import ANY_GENERATOR
from autodist.interpreter import Interpreter
from autodist.models import parts
from autodist.randomness.drawing import DROPOUT, is_call_of, is_dropout
from autodist.script import Model
from autodist.values import (
    Object,
)

RATES = ("_drop", "_dropout", "drop_prob", "depth_prob")
"""How the arguments end that say how much is dropped."""
CLASS = re.compile(r"(?:^|\.)[A-Z]\w*(?:\.from_\w+)?$|create_model$")
"""The names of classes, and of what makes their objects."""


def drops(models: list[Model], run: Interpreter, known: bool = False) -> bool:
    """Whether numbers are dropped out, by layers of the script or of a library; or may be, unless that must be
    ``known``."""
    return drop_inside(models, run, known) or any(is_dropout(event, run) for event in run.of("random"))


def drop_inside(models: list[Model], run: Interpreter, known: bool = False) -> bool:
    """Whether one of the models drops numbers out by layers of a library, where no call of the script shows it. One of
    which nothing is known may do so, unless that must be ``known``."""
    held = [part for model in models for part in parts(model.object)]
    inner = [t for part in held for value in part.attributes.values() for t in value.things if isinstance(t, Object)]
    inner += [
        t for part in held if part.cls is None for value in part.args for t in value.things if isinstance(t, Object)
    ]
    layers = [each for each in inner if "module" in each.roles or CLASS.search(each.name)]
    return any(_drops_inside(each, run, known) for each in (*held, *layers))


def _drops_inside(module: Object, run: Interpreter, known: bool) -> bool:
    """Whether a module of a library drops numbers out by layers of its own, as it is made here."""
    if module.cls is not None:
        return False
    rates = [value for key, value in module.keywords.items() if key.startswith("drop") or key.endswith(RATES)]
    rates += module.args[2:3] if module.name.endswith(".MultiheadAttention") else []
    if any(rate.const not in (0, None, False) for rate in rates):
        return True
    drawn = run.catalog.draws(module.name)
    return "torch" in drawn and not (known and drawn == ANY_GENERATOR)


def has_masks(models: list[Model], run: Interpreter, common: Collection[ast.AST] = ()) -> bool:
    """Whether a model drops numbers out; what transforms draw for samples is told of as augmentation, and ``common``
    masks serve a whole batch."""
    masking = (is_call_of(event, run, DROPOUT) for event in run.of("random") if event.node not in common)
    return drop_inside(models, run, known=True) or any(masking)
