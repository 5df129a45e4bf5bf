"""Whether a model drops numbers out, by layers of the script or of a library."""

from __future__ import annotations

from autodist.interpreter import Interpreter
from autodist.models import parts
from autodist.randomness.drawing import DROPOUT, is_call_of, is_dropout
from autodist.script import Model
from autodist.values import (
    Object,
)

DROPPING = ("alexnet", "vgg", "googlenet", "inception", "mobilenet", "efficientnet", "mnasnet", "convnext", "swin")
"""How names begin of those models of torchvision that have dropout or skip layers at random unless told otherwise."""


def drops(models: list[Model], run: Interpreter) -> bool:
    """Whether numbers are dropped out, by layers of the script or of a library."""
    return drop_inside(models) or any(is_dropout(event, run) for event in run.of("random"))


def drop_inside(models: list[Model]) -> bool:
    """Whether one of the models drops numbers out by layers of a library, where no call of the script shows it."""
    held = [part for model in models for part in parts(model.object)]
    held += [t for part in held for value in part.attributes.values() for t in value.things if isinstance(t, Object)]
    return any(map(_drops_inside, held))


def _drops_inside(module: Object) -> bool:
    """Whether a module of a library drops numbers out by layers of its own, as it is made here."""
    if module.cls is not None:
        return False
    library, _, name = module.name.rpartition(".")
    if library.startswith("torchvision.models"):
        return name.startswith(DROPPING)
    if module.name.startswith("transformers."):
        return "Model" in module.name or "For" in module.name  # and no tokenizer
    rates = [value for key, value in module.keywords.items() if key.startswith("drop") or key.endswith("_drop")]
    rates += module.args[2:3] if name == "MultiheadAttention" else []
    return library.startswith(("torch.nn", "timm", "torch_geometric.nn")) and any(
        rate.const not in (0, None, False) for rate in rates
    )


def has_masks(models: list[Model], run: Interpreter) -> bool:
    """Whether a model drops numbers out; what transforms draw for samples is told of as augmentation."""
    masking = (is_call_of(event, run, DROPOUT) for event in run.of("random"))
    return drop_inside(models) or any(masking)
