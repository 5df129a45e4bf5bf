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


def order_of(values: torch.Tensor) -> list[float]:
    """The sum of all entries, the sum of their magnitudes, and along each of the first dimensions the sum with the rows
    counted by their place; empty for tensors without numbers of their own, as below ``torch.vmap``."""
    if values.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(values):
        return []
    exact = values.detach().to(torch.float64)
    sums = [exact.sum(), exact.abs().sum()]
    for dimension in range(min(DIMENSIONS, exact.dim())):
        rows = exact.sum([other for other in range(exact.dim()) if other != dimension]) if exact.dim() > 1 else exact
        sums.append(rows @ torch.arange(1, len(rows) + 1, dtype=torch.float64, device=rows.device))
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
    if dimension >= DIMENSIONS or not all(orders):
        return None
    rounding = ROUNDING.get(values.dtype, COARSE)
    whole = order_of(values)
    if not whole:
        return None
    total, magnitude = whole[:2]
    if not abs(sum(order[0] for order in orders) - total) <= rounding * magnitude:
        return None
    for rank, order in enumerate(orders):
        part = take(rank)
        if not abs(order_of(part)[2 + dimension] - order[2 + dimension]) <= rounding * order[1] * part.shape[dimension]:
            return True
    return False
