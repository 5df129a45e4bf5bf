"""Each operation of the table, on a whole batch and on three unequal shares: the placement must be what joins them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from trials import SHARES, SIZE, TABLE, Trial, numbers, trials

from autodist.operations import Operation
from autodist.placement import Partial, PerRank, Placement, Replicate, Shard, transfer

BY_SHAPE = frozenset("random random_like".split())
RANDOM = frozenset("empty empty_like new_empty pca_lowrank".split())
IMPRECISE = frozenset(
    "torch.conv_transpose1d torch.conv_transpose2d torch.nn.functional.conv_transpose1d "
    "torch.nn.functional.conv_transpose2d torch.nn.MultiheadAttention torch.take_along_dim numpy.take_along_axis "
    "torch.searchsorted torch.rot90 torch.cartesian_prod".split()
)
"""What says that nothing joins the ranks' results, where something does: of weights that are shared out, of queries
without keys, of no axis, and of functions that are too rare for a class of their own."""
BETWEEN = ("collective", "rank")
"""What a process group is needed for: tests/ranks."""
NEEDS_A_GPU = frozenset(["torch.Tensor.cuda", "torch.Tensor.pin_memory"])
"""What cannot be called here; everything else is."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Of tensors as small as these, several threads make short work long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def first(value: Any) -> Any:
    """The tensor that a call gives, or the first of several; None for what has no numbers."""
    if hasattr(value, "toarray") or type(value).__module__ == "numpy":
        return torch.as_tensor(np.ascontiguousarray(value)).view(value.shape)
    if isinstance(value, (bool, int, float, complex)):
        return torch.tensor(value, dtype=torch.complex128 if isinstance(value, complex) else torch.float64)
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(each, (bool, int, float)) for each in value):
            return torch.tensor(value, dtype=torch.float64)
        if value and isinstance(value[0], list):
            return torch.tensor(value, dtype=torch.float64)
        return torch.stack(list(value)) if value and all(_scalar(each) for each in value) else first(value[0])
    return value


def _scalar(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal, but for the order of additions."""
    if one.shape != other.shape:
        return False
    kind = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    return torch.allclose(one.to(kind), other.to(kind), rtol=1e-9, atol=1e-11, equal_nan=True)


def _in_order(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """The entries along an axis in one order, whatever it was."""
    rows = tensor.movedim(axis, 0).flatten(1) if tensor.dim() > 1 else tensor[:, None]
    return torch.as_tensor(sorted(map(tuple, rows.tolist())))


def joins(placement: Placement, whole: Any, parts: list[Any], by_shape: bool = False) -> bool:
    """Whether a placement says how the whole follows from the parts."""
    if not isinstance(whole, torch.Tensor):
        return isinstance(placement, Replicate) and all(each == whole for each in parts)
    if by_shape:
        whole, parts = torch.zeros(whole.shape), [torch.zeros(each.shape) for each in parts]
    if isinstance(placement, Replicate):
        return all(close(each, whole * 3.0**placement.exponent if placement.exponent else whole) for each in parts)
    if isinstance(placement, Shard):
        fits = all(each.dim() == whole.dim() > placement.axis for each in parts)
        if fits and placement.order:  # the same entries in another order
            joined = torch.cat(parts, placement.axis)
            return close(_in_order(joined, placement.axis), _in_order(whole, placement.axis))
        try:
            return fits and close(torch.cat(parts, placement.axis), whole)
        except RuntimeError:
            return False
    assert isinstance(placement, Partial)
    if any(each.shape != whole.shape for each in parts):
        return False
    wide = torch.complex128 if whole.is_complex() else torch.float64
    stacked = torch.stack([each.to(wide) for each in parts])
    if placement.reduce == "mean":
        weights = torch.tensor(SHARES, dtype=torch.float64) / SIZE
        return close((stacked * weights.view(-1, *[1] * whole.dim())).sum(0), whole)
    if placement.reduce == "sum":
        return close(stacked.sum(0), whole)
    if stacked.is_complex():
        return False
    return close(stacked.amax(0) if placement.reduce == "max" else stacked.amin(0), whole)


def simple(whole: Any, parts: list[Any]) -> list[Placement]:
    """All placements that join the parts to the whole."""
    axes = whole.dim() if isinstance(whole, torch.Tensor) else 0
    tried: list[Placement] = [Replicate(), *map(Shard, range(axes))]
    if isinstance(whole, torch.Tensor):
        tried += [Partial("sum"), Partial("mean", "rows"), Partial("max"), Partial("min")]
    return [each for each in tried if joins(each, whole, parts)]


def shares(tensor: torch.Tensor, placement: Placement) -> list[torch.Tensor]:
    """What each of three ranks has of a tensor."""
    if isinstance(placement, Shard):
        return [each.contiguous() for each in torch.split(tensor, list(SHARES), placement.axis)]
    return [tensor] * len(SHARES)


def is_ordinary(placements: tuple[Placement, ...]) -> bool:
    """Whether samples lie along the first axis, where an answer must not be less than there is to say."""
    return placements[0] == Shard(0) and all(each in (Shard(0), Replicate()) for each in placements)


def outcome(trial: Trial, tensors: list[torch.Tensor]) -> Any:
    """What a call gives; the error, if it fails."""
    torch.manual_seed(3)
    np.random.seed(3)
    try:
        return first(trial.function(*tensors))
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        return error


def verdict(trial: Trial, placements: tuple[Placement, ...]) -> str | None:
    """What is wrong with the placement of a result, on two sets of numbers: nothing joins by chance twice."""
    found = _verdict(trial, placements, 0)
    return _verdict(trial, placements, 1) if found else found


def _verdict(trial: Trial, placements: tuple[Placement, ...], seed: int) -> str | None:
    """What is wrong with the placement of a result; None if nothing is, and "" if there is no such call."""
    sizes = tuple(
        tuple(SIZE if isinstance(p, Shard) and at == p.axis else size for at, size in enumerate(each))
        for p, each in zip(placements, trial.sizes, strict=True)
    )
    if sizes != trial.sizes:
        return ""  # that axis is no axis of samples in this call
    torch.manual_seed(seed)
    tensors = [numbers(each, kind) for each, kind in zip(sizes, trial.kinds or [""] * len(sizes), strict=True)]
    whole = outcome(trial, tensors)
    if isinstance(whole, Exception):
        return ""
    pieces = [shares(tensor, placement) for tensor, placement in zip(tensors, placements, strict=True)]
    parts = [outcome(trial, [each[rank] for each in pieces]) for rank in range(len(SHARES))]
    failed = any(isinstance(each, Exception) for each in parts)
    call = trial.call(placements, sizes)
    if trial.operation.cls in ("fill", "random", "arange"):
        counted = call.operands[0]
        call = trial.call((Partial("sum", "rows") if isinstance(counted.placement, Shard) else Replicate(),), ((),))
    said = transfer(trial.operation, call)
    by_shape = trial.operation.cls in BY_SHAPE or trial.operation.short in RANDOM
    seeded = isinstance(said, Replicate) and "empty" not in trial.operation.short
    if isinstance(said, PerRank):
        found = simple(whole, parts) if is_ordinary(placements) and not failed and not by_shape else []
        return f"{placements}: nothing joins it ({said.reason}), but {found} do" if found else None
    if failed:
        return f"{placements}: {said}, but a rank's call fails: {next(e for e in parts if isinstance(e, Exception))}"
    if joins(said, whole, parts, by_shape and not seeded):
        return None
    return f"{placements} {trial.told}: {said} does not join {parts} to {whole}; {simple(whole, parts)} do"


@pytest.mark.parametrize(
    "operation", [each for each in TABLE if each.cls not in {*BETWEEN, "table"}], ids=lambda each: each.name
)
def test_placement_is_what_joins_the_ranks_results(operation: Operation) -> None:
    if operation.name in NEEDS_A_GPU:
        return
    found = [verdict(trial, way) for trial in trials(operation) for way in trial.ways()]
    tried = [each for each in found if each != ""]
    scalar = operation.name.startswith(("builtins.", "math.")) or operation.short == "item"
    assert len(tried) > (0 if scalar else 1), "there is no call to try it by: write one in examples.py"
    wrong = [each for each in tried if each is not None]
    unsound = [each for each in wrong if "nothing joins it" not in each]
    assert not unsound, unsound
    assert bool(wrong) == (operation.name in IMPRECISE), wrong
