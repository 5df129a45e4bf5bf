"""Losses that are the largest or the smallest of a batch: each rank has one of its own samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_places import PLAIN, loss_of

EACH = 'F.cross_entropy(out, y, reduction="none")'
OF_ONE = "it is the largest or smallest of a rank's samples"


@pytest.mark.parametrize(
    "step",
    [
        f"loss = {EACH}.max()",
        f"each = {EACH}\nloss = each.min() * 1.0",
        f"loss = torch.amax({EACH}, dim=0)",
        "loss = torch.stack([o.pow(2).sum() for o in out]).max()",
        f"loss = {PLAIN} + {EACH}.max()",
    ],
)
def test_the_largest_loss_is_that_of_all_ranks(tmp_path: Path, step: str) -> None:
    code, said = loss_of(tmp_path, step)
    assert "RowsOfAllRanks.apply(" in code and "AD606" in said and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = max(o.pow(2).sum() for o in out)",
        "loss = min([o.pow(2).sum() for o in out])",
        "each = [o.pow(2).sum() for o in out]\nloss = max(each)",
    ],
)
def test_the_largest_of_the_samples_of_a_loop_is_told(tmp_path: Path, step: str) -> None:
    _, said = loss_of(tmp_path, step)
    assert OF_ONE in said or "AD606" in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = sum(max(o.pow(2).sum(), o.abs().sum()) for o in out) / len(out)",
        "loss = sum(max(v for v in o.pow(2)) for o in out) / len(out)",
        "loss = out.amax(dim=1).mean()",
        f"loss = max({PLAIN}, torch.zeros(()))",
    ],
)
def test_the_largest_number_of_a_sample_is_its_own(tmp_path: Path, step: str) -> None:
    _, said = loss_of(tmp_path, step)
    assert OF_ONE not in said and "AD606" not in said
