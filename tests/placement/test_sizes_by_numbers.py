"""What is said of how many axes a result has, and of how many numbers along each, is so when the operation is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from test_by_numbers import BETWEEN, NEEDS_A_GPU, outcome
from trials import TABLE, Trial, numbers, trials

from autodist.operations import Operation
from autodist.placement import Replicate
from autodist.placement.shapes import result_sizes

SIZED = frozenset("table fill random arange".split())
"""Classes of what takes sizes for operands, or reads files."""
SEVERAL = frozenset("divmod std_mean var_mean".split())
"""What gives a tuple of numbers."""


def wrong(trial: Trial) -> Iterator[str]:
    """What sizes are said that the result has not."""
    torch.manual_seed(0)
    kinds = trial.kinds or [""] * len(trial.sizes)
    whole = outcome(trial, [numbers(each, kind) for each, kind in zip(trial.sizes, kinds, strict=True)])
    if not isinstance(whole, torch.Tensor):
        return
    call = replace(trial.call((Replicate(),) * len(trial.sizes), trial.sizes), parameters=trial.operation.parameters)
    said = result_sizes(trial.operation, trial.operation.name, call, trial.sizes)
    shape = tuple(whole.shape)
    if said is None:
        return
    if len(said) != len(shape) or any(one not in (None, other) for one, other in zip(said, shape, strict=True)):
        yield f"{trial.sizes} {trial.told}: {said} is said, and the result has {shape}"


@pytest.mark.parametrize(
    "operation",
    [
        each
        for each in TABLE
        if each.cls not in {*BETWEEN, *SIZED} and each.short not in SEVERAL and each.name not in NEEDS_A_GPU
    ],
    ids=lambda each: each.name,
)
def test_sizes_are_those_of_the_result(operation: Operation) -> None:
    assert not [each for trial in trials(operation) for each in wrong(trial)]
