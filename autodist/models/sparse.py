"""Layers with sparse gradients, which some ways to train on several ranks cannot add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autodist.models.parts import parts
from autodist.rule import Severity
from autodist.script import Concern, Model
from autodist.values import Object

EMBEDDINGS = ("torch.nn.Embedding", "torch.nn.EmbeddingBag")
OVER_NCCL = (
    "its gradients are sparse, which NCCL cannot add up: to train on GPUs, leave sparse=True away, or give "
    'DistributedDataParallel process_group=dist.new_group(backend="gloo"), which can'
)


def sparse_layers(models: Iterable[Model]) -> Iterator[tuple[Object, bool]]:
    """The first embedding with sparse gradients, and whether it has them in any case, whatever a setting says."""
    ours = (each for model in models if not model.wrapped for each in (model.object, *model.alternatives))
    told = {part: part.argument("sparse", 6) for each in ours for part in parts(each) if part.name in EMBEDDINGS}
    asked = {part: value.const for part, value in told.items() if value is not None and value.const is not False}
    for part, const in list(asked.items())[:1]:
        yield part, const is True and len(told) == len(asked)


def sparse_over_nccl(models: Iterable[Model]) -> Iterator[Concern]:
    """A warning for a script that may train on GPUs."""
    for part, certain in sparse_layers(models):
        message = OVER_NCCL if certain else f"where a setting asks for them, {OVER_NCCL}"
        yield Concern("AD401", part.source, part.node, message, Severity.WARNING)
