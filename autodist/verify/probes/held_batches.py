"""Batches that a script holds on to: ``list(loader)`` is trained on when the loader has long come to its end."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

WATCHED = 3
"""Batches of a pass that are watched, the first ones: a loop holds one at a time, and one that is fetched ahead."""
HELD = 2
"""So many of them live where the script keeps the batches."""


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch as collating functions make them."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_of(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors_of(value)


@dataclass
class HeldBatches:
    """What a script has of one pass over a loader, seen by weak references."""

    sizes: dict[int, None] = field(default_factory=dict)
    """How many samples the batches have, each number once."""
    _first: list[list[weakref.ref[torch.Tensor]]] = field(default_factory=list)

    def add(self, batch: Any, size: int) -> None:
        """The pass has given one more batch, of ``size`` samples."""
        self.sizes[size] = None
        if len(self._first) < WATCHED:
            self._first.append([weakref.ref(tensor) for tensor in tensors_of(batch)])

    @property
    def alive(self) -> bool:
        """Whether the script still holds several batches."""
        return sum(any(ref() is not None for ref in batch) for batch in self._first) >= HELD

    def has(self, values: Any) -> bool:
        """Whether one of the tensors in ``values`` lies in the memory of a batch that is watched."""
        held = [tensor for batch in self._first for ref in batch if (tensor := ref()) is not None]
        places = {tensor.untyped_storage().data_ptr() for tensor in held if tensor.layout == torch.strided}
        given = (tensor for tensor in tensors_of(values) if tensor.layout == torch.strided)
        return any(tensor.untyped_storage().data_ptr() in places for tensor in given)
