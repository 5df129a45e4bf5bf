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
LINE = 1024
LONG = 4 * LINE
"""Longer vectors are projected line by line."""
REAL = (torch.float32, torch.float64)
_cast = torch.Tensor.to  # as it is: verification in float64 widens what a script casts
_fill_normal = torch.Tensor.normal_
"""Torch's own, before the randomness probe replaces it."""


class Digester:
    """Computes digests, with the random directions kept between calls.

    A direction is the outer product of two short random vectors, laid out in one line. As it stands it is as long as
    the tensor, and to read it for every digest would drive the training's own data out of the cache.
    """

    def __init__(self) -> None:
        self._factors: dict[tuple[torch.device, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}
        self._directions: dict[tuple[int, torch.device, torch.dtype], torch.Tensor] = {}
        """Directions laid out, for short tensors and for those that are sharded."""

    def _factors_for(self, lines: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The factors of the directions: along a line, and over at least so many lines."""
        key = (like.device, like.dtype)
        found = self._factors.get(key)
        if found is None or found[1].shape[1] < lines:
            length = LINE + max(lines, 64 if found is None else 2 * found[1].shape[1])
            length += -length % 16  # torch draws sixteen at a time, and the last sixteen anew where they do not divide
            generator = torch.Generator().manual_seed(987654321)
            # drawn column by column, so that a longer set begins with the shorter one
            drawn = _fill_normal(torch.empty(length, PROJECTIONS, dtype=torch.float64), generator=generator)
            along, over = drawn[:LINE].T.contiguous(), drawn[LINE:].T.contiguous()
            found = self._factors[key] = _cast(along, like.device, like.dtype), _cast(over, like.device, like.dtype)
        return found

    def _directions_for(self, size: int, like: torch.Tensor) -> torch.Tensor:
        key = (size, like.device, like.dtype)
        found = self._directions.get(key)
        if found is None:
            lines = -(-size // LINE)
            along, over = self._factors_for(lines, like)
            laid_out = (over[:, :lines, None] * along[:, None]).reshape(PROJECTIONS, -1)
            found = self._directions[key] = laid_out[:, :size].contiguous()
        return found

    def _long(self, flat: torch.Tensor) -> torch.Tensor:
        """The projections of a long vector, which is read once."""
        lines = flat.shape[0] // LINE
        whole = lines * LINE
        along, over = self._factors_for(lines + 1, flat)
        projections = (torch.mm(over[:, :lines], flat[:whole].view(lines, LINE)) * along).sum(1)
        if whole < flat.shape[0]:
            rest = flat[whole:]
            projections += torch.mv(along[:, : rest.shape[0]], rest) * over[:, lines]
        return projections

    def _projected(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensor as a vector, and its projections, still on the device of ``value``."""
        value = value.detach()
        if type(value) is not torch.Tensor or value.layout is not torch.strided or value.dtype not in REAL:
            return self._projected_specially(value)
        flat = value.reshape(-1)
        if flat.shape[0] > LONG:
            return flat, self._long(flat)
        return flat, torch.mv(self._directions_for(flat.shape[0], flat), flat)

    def _projected_specially(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tensors that are sparse, sharded, complex, or of integers."""
        if value.is_sparse:
            value = value.to_dense()
        whole, selection = value, None
        if hasattr(value, "to_local") and hasattr(value, "placements"):
            whole, selection = value, shard_of(value)
            value = value.to_local()
        if value.is_complex():
            value = torch.view_as_real(value)
        flat = value.reshape(-1)
        flat = flat if flat.dtype in REAL else flat.double()
        if selection is None:
            return flat, (
                self._long(flat) if flat.shape[0] > LONG else torch.mv(self._directions_for(flat.shape[0], flat), flat)
            )
        directions = self._directions_for(whole.numel(), flat)
        selected = (slice(None), *selection)
        directions = directions.reshape(PROJECTIONS, *whole.shape)[selected].reshape(PROJECTIONS, -1)
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
            for at, row in zip(group, table.tolist(), strict=True):
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
