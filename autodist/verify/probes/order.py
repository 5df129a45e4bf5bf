"""Whether samples lie on the ranks in another order than in the whole batch, as where a script sorts them by length.

Draws of ranks that sort are put together in the order in which samples were dealt out, and so meet other samples than
on the ranks, although their shapes fit. What a draw is made for tells: a few sums of it, where rows count by their
place. They are the same up to rounding where the order is, and another order leaves the sum of all rows what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

DIMENSIONS = 2
"""The batch lies along the first or the second dimension."""
ROUNDING = {torch.float64: 1e-8}
COARSE = 1e-4
"""What programs may differ by that compute the same, relative to the numbers that are summed."""
PERMUTED = 1e-5
"""What another order makes of sums that count rows by their place, at the least. Programs that train differently by a
little have the same order."""


def order_of(values: torch.Tensor) -> list[float]:
    """The sum of all magnitudes, and along each of the first dimensions two sums over the rows, each taken as one
    number: all alike, and counted by their place; empty for tensors without numbers of their own, as below
    ``torch.vmap``."""
    if values.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(values):
        return []
    exact = values.detach().to(torch.float64)
    sums = [exact.abs().sum()]
    for dimension in range(min(DIMENSIONS, exact.dim())):
        rows = exact.movedim(dimension, 0).reshape(exact.shape[dimension], -1)
        # rows that are normalised add up to the same, so that their entries count differently
        numbers = rows @ torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).cos()
        sums += [numbers.sum(), numbers @ torch.arange(1, len(rows) + 1, dtype=torch.float64, device=rows.device)]
    result: list[float] = torch.stack(sums).tolist()
    return result


def lies_otherwise(
    values: torch.Tensor,
    take: Callable[[int], torch.Tensor],
    orders: Sequence[Sequence[float]],
    dimension: int,
) -> bool | None:
    """Whether the ranks have the rows of ``values`` in another order than ``take`` gives for each of them; None where
    they have other rows."""
    whole = order_of(values) if dimension < DIMENSIONS and all(orders) else []
    if not whole:
        return None
    alike, by_place = 1 + 2 * dimension, 2 + 2 * dimension
    rounding = ROUNDING.get(values.dtype, COARSE)
    if not abs(sum(order[alike] for order in orders) - whole[alike]) <= rounding * whole[0]:
        return None
    for rank, order in enumerate(orders):
        part = take(rank)
        if not abs(order_of(part)[by_place] - order[by_place]) <= PERMUTED * order[0] * part.shape[dimension]:
            return True
    return False
