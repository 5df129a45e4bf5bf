"""The draws of all ranks for one draw of the original, and how the rows of the ranks lie in its batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from autodist.verify.probes.streams import key_seed
from autodist.verify.replay import in_turns

Shape = list[int]


class Layout:
    """How the rows of the ranks lie in the batch of the original, along one dimension: they take turns.

    One sample may be several rows, as when time steps or image patches are folded into the dimension of the batch.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        batches: Sequence[int],
        stacked: bool = False,
        pieces: Sequence[Sequence[int]] = (),
    ) -> None:
        """``batches`` are the sizes of those at hand, the latest first, which may have been joined in that order;
        ``stacked`` where batches lie one after the other, as several views of it that are joined do; ``pieces`` are
        numbers of rows that each sample may have."""
        total, world = sum(sizes), len(sizes)
        of_loaders = [[len(range(rank, size, world)) for rank in range(world)] for size in reversed(batches)]
        of_all = [sum(shares) for shares in zip(*of_loaders, strict=True)]
        group = next((total // batch for batch in batches if total % batch == 0), 1)
        if total in batches or any(size % group for size in sizes):
            group = 1
        turns = [rank for _, rank in in_turns([size // group for size in sizes])]
        self.positions: list[list[int]] = [[] for _ in sizes]
        joined = next((p for p in pieces if total not in batches and dealt_out(p, len(sizes)) == list(sizes)), None)
        if joined is not None:
            starts = itertools.accumulate(joined, initial=0)
            for sample, (start, count) in enumerate(zip(starts, joined, strict=False)):
                self.positions[sample % len(sizes)] += range(start, start + count)
        elif len(batches) > 1 and sum(batches) == total and of_all == list(sizes):
            start = 0
            for size in reversed(batches):
                for rank in range(world):
                    self.positions[rank] += range(start + rank, start + size, world)
                start += size
        elif stacked:
            for at, rank in enumerate(turns * group):
                self.positions[rank].append(at)
        else:
            for at, rank in enumerate(turns):
                self.positions[rank] += range(at * group, (at + 1) * group)
        flat = [position for of_rank in self.positions for position in of_rank]
        self.in_order = flat == list(range(total))
        inverse = [0] * total
        for at, position in enumerate(flat):
            inverse[position] = at
        self.inverse = inverse

    def take(self, tensor: torch.Tensor, dimension: int, rank: int) -> torch.Tensor:
        """The rows of one rank."""
        index = torch.tensor(self.positions[rank], device=tensor.device)
        return tensor.index_select(dimension, index)

    def join(self, parts: Sequence[torch.Tensor], dimension: int) -> torch.Tensor:
        """The rows of all ranks where the original has them."""
        joined = torch.cat(list(parts), dimension)
        if self.in_order:
            return joined
        return joined.index_select(dimension, torch.tensor(self.inverse, device=joined.device))


def dealt_out(pieces: Sequence[int], world: int) -> list[int]:
    """How many rows each rank has of samples that are dealt out in turns."""
    return [sum(pieces[rank::world]) for rank in range(world)]


@dataclass(frozen=True)
class Parts:
    """The draws of all ranks for one draw of the original."""

    shapes: list[Shape]
    dimension: int
    seeds: list[int]
    layout: Layout
    bounds: list[int | None] = field(default_factory=list)
    """Of each rank, below which number it draws."""

    def picks(self, bound: int | None) -> bool:
        """Whether the numbers pick rows of a batch of ``bound``, each rank's among its own."""
        shares = [shape[self.dimension] for shape in self.shapes]
        return bound == sum(shares) and self.bounds == shares

    def take(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """The rows of one rank."""
        return self.layout.take(tensor, self.dimension, rank)

    def join(self, parts: Sequence[torch.Tensor], dimension: int | None = None) -> torch.Tensor:
        """The rows of all ranks where the original has them."""
        return self.layout.join(parts, self.dimension if dimension is None else dimension)


def rank_seed(seed: int, rank: int) -> int:
    """The seed that one rank draws its part of the batch with; rank 0 keeps the common one."""
    return seed if rank == 0 else key_seed(seed, rank)
