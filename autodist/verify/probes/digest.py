"""A tensor in four numbers: its norm and its projections on three fixed random directions.

The difference of the projections of two tensors estimates the norm of their difference, so that two processes compare
tensors through their traces. Projections are linear: those of the shards of a sharded tensor add up to those of the
whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

PROJECTIONS = 3
_fill_normal = torch.Tensor.normal_
"""Torch's own, before the randomness probe replaces it."""


class Digester:
    """Computes digests, with the random directions kept between calls."""

    def __init__(self) -> None:
        self._directions: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def _directions_for(self, size: int, like: torch.Tensor) -> torch.Tensor:
        key = (like.device, like.dtype)
        kept = self._directions.get(key)
        if kept is None or kept.shape[1] < size:
            generator = torch.Generator().manual_seed(987654321)
            length = max(size, 1024 if kept is None else 2 * kept.shape[1])
            # drawn column by column, so that a longer set begins with the shorter one
            drawn = _fill_normal(torch.empty(length, PROJECTIONS, dtype=torch.float64), generator=generator)
            kept = drawn.T.contiguous().to(like.device, like.dtype)
            self._directions[key] = kept
        return kept[:, :size]

    def _projected(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensor as a vector, and its projections, still on the device of ``value``."""
        value = value.detach()
        if value.is_sparse:
            value = value.to_dense()
        whole, selection = value, None
        if hasattr(value, "to_local") and hasattr(value, "placements"):
            whole, selection = value, shard_of(value)
            value = value.to_local()
        if value.is_complex():
            value = torch.view_as_real(value)
        flat = value.reshape(-1)
        flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
        directions = self._directions_for(whole.numel(), flat)
        if selection is not None:
            selected = (slice(None), *selection)
            directions = directions.reshape(PROJECTIONS, *whole.shape)[selected].reshape(PROJECTIONS, -1)
        elif value.numel() != whole.numel():
            directions = self._directions_for(value.numel(), flat)
        return flat, torch.mv(directions[:, : flat.numel()], flat)

    def all(self, values: Iterable[torch.Tensor | None]) -> list[list[float] | None]:
        """The digests of several tensors as plain numbers."""
        digested = list(values)
        projected = [self._projected(value) for value in digested if value is not None]
        alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for at, (flat, _) in enumerate(projected):
            alike.setdefault((flat.device, flat.dtype), []).append(at)
        numbers: list[list[float]] = [[]] * len(projected)
        for group in alike.values():  # few large operations instead of many small ones
            norms = torch.stack(torch._foreach_norm([projected[at][0] for at in group]))
            table = torch.cat([norms[:, None], torch.stack([projected[at][1] for at in group])], dim=1)
            for at, row in zip(group, table.double().cpu().tolist(), strict=True):
                numbers[at] = row
        rows = iter(numbers)
        return [
            None if value is None else [*next(rows), *([mark(value)] if is_shard(value) else [])] for value in digested
        ]


def is_shard(value: Any) -> bool:
    """This rank holds a part of the tensor; digests of parts carry a mark."""
    return any(placement.is_shard() for placement in getattr(value, "placements", ()))


def mark(value: Any) -> float:
    """Which part it is, from 1: ranks that hold copies of one part have one mark."""
    number = 0
    coordinates = value.device_mesh.get_coordinate()
    for placement, size, at in zip(value.placements, value.device_mesh.shape, coordinates, strict=True):
        if placement.is_shard():
            number = number * size + at
    return number + 1.0


def shard_of(value: Any) -> tuple[slice, ...] | None:
    """Which part of the whole tensor this rank holds, None where it holds all of it."""
    if not is_shard(value):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
