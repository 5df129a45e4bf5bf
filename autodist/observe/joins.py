"""What joins the values of three shares of a batch to that of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""Relative, by how exactly a type of numbers holds what is computed."""
SHARES = 3


@dataclass(frozen=True)
class Join:
    """One way of joining: equal, rows, sum, mean, max or min."""

    kind: str
    axis: int | None = None
    weight: str = ""
    """Of a mean, by what the shares count: rows, or another count, named by the operation that makes it."""

    def __str__(self) -> str:
        texts = {
            "equal": "the same on all ranks",
            "rows": f"the shares joined along axis {self.axis}",
            "sum": "the sum over the ranks",
            "mean": f"the mean over the ranks, weighted by {self.weight}",
            "max": "the maximum over the ranks",
            "min": "the minimum over the ranks",
        }
        return texts[self.kind]


@dataclass(frozen=True)
class Values:
    """A value on the whole batch and on its three shares."""

    whole: Any
    shares: tuple[Any, ...]
    weights: Mapping[str, tuple[float, ...]]
    """What each share counts, by name; the first of several that fit is meant."""

    @property
    def known(self) -> bool:
        """All four were kept, and not only their shapes."""
        return not any(isinstance(each, tuple) for each in (self.whole, *self.shares))


def joins(values: Values) -> list[Join]:
    """All ways of joining that give the whole value. None of them for what is not a number."""
    if not values.known:
        return []
    whole, shares = _tensor(values.whole), [_tensor(each) for each in values.shares]
    return list(_found(whole, shares, values.weights))


def _found(whole: torch.Tensor, shares: list[torch.Tensor], weights: Mapping[str, Sequence[float]]) -> Iterator[Join]:
    if all(close(whole, each) for each in shares):
        yield Join("equal")
    for axis in range(whole.dim()):
        rest = (*whole.shape[:axis], *whole.shape[axis + 1 :])
        if all(each.dim() == whole.dim() and (*each.shape[:axis], *each.shape[axis + 1 :]) == rest for each in shares):
            if close(whole, torch.cat(shares, axis)):
                yield Join("rows", axis)
    if whole.is_complex() or any(each.shape != whole.shape for each in shares):
        return
    numbers, wanted = torch.stack([each.double() for each in shares]), whole.double()
    if close(wanted, numbers.sum(0), whole.dtype):
        yield Join("sum")
    for name, counts in weights.items():
        share = torch.tensor(counts, dtype=torch.float64)
        if share.sum() > 0 and close(wanted, torch.tensordot(share / share.sum(), numbers, 1), whole.dtype):
            yield Join("mean", weight=name)
    if close(wanted, numbers.amax(0), whole.dtype):
        yield Join("max")
    if close(wanted, numbers.amin(0), whole.dtype):
        yield Join("min")


def close(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Equal but for rounding, which is measured against the largest number."""
    if one.shape != other.shape:
        return False
    if not (one.is_floating_point() or one.is_complex()) and dtype is None:
        return bool(torch.equal(one, other))
    tolerance = TOLERANCE.get(dtype or one.dtype, 1e-9)
    finite = one[torch.isfinite(one)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return bool(torch.allclose(one, other.to(one.dtype), rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def settled(occurrences: Sequence[Values]) -> tuple[str, Join | None]:
    """What joins a value every time it occurs: known with the way, mixed where nothing does, or undecided.

    A value that is always zero, or that has several ways of joining, is undecided; one that is the same on all shares
    every time is the same, whatever else holds for it.
    """
    if not occurrences or not all(each.known for each in occurrences):
        return "undecided", None
    every = [joins(each) for each in occurrences]
    common = [way for way in every[0] if all(way in other for other in every[1:])]
    if not common:
        return "mixed", None
    if all(_is_zero(each.whole) for each in occurrences):
        return "undecided", None
    if common[0].kind == "equal":
        return "known", common[0]
    kinds = {way.kind for way in common}
    return ("known", common[0]) if len(kinds) == 1 else ("undecided", None)


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)


def _is_zero(value: Any) -> bool:
    return not bool(_tensor(value).count_nonzero())
