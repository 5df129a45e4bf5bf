"""Numbers that are none: what two programs have of them in common proves nothing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autodist.verify import Outcome, WorldVerdict, verify
from autodist.verify.compare import TOLERANCES, distance, relative, spread
from autodist.verify.contents import tree_difference
from autodist.verify.launch import Zygote
from verify.conftest import edit

LOSS = "loss.backward()"
LOST = "(loss * float('nan')).backward()"
LOST_LATER = "(loss * (float('nan') if len(optimizer.state) else 1)).backward()"


def world(folder: Path, zygote: Zygote | None) -> WorldVerdict:
    pair = folder / "before.py", folder / "after.py"
    return verify(*pair, [2], workdir=folder, timeout=100, zygote=zygote).worlds[0]


def test_a_training_without_a_finite_number_is_not_comparable(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before.py", "after.py"):
        edit(pair / name, LOSS, LOST)
    verdict = world(pair, zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE and not verdict.findings
    assert "neither a loss nor a gradient that is a finite number" in verdict.reason


def test_steps_without_a_finite_number_are_not_counted(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before.py", "after.py"):
        edit(pair / name, LOSS, LOST_LATER)
    verdict = world(pair, zygote)
    assert verdict.equal and verdict.reason.startswith("1 optimizer step"), verdict.reason
    (note,) = (note.message for note in verdict.notes if note.kind == "not-finite")
    assert f"in {verdict.steps - 1} of {verdict.steps} steps, first in step 1" in note


def test_a_conversion_that_alone_loses_its_numbers_differs(pair: Path, zygote: Zygote | None) -> None:
    lost = "[each.grad.mul_(float('nan')) for each in optimizer.param_groups[0]['params']]"
    edit(pair / "after.py", LOSS, f"{LOSS}; {lost}")
    verdict = world(pair, zygote)
    assert verdict.outcome is Outcome.DIFFERS and "gradient" in {finding.kind for finding in verdict.findings}


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_one_side_only(lost: float) -> None:
    there, gone = [1.0, 0.1, 0.2, 0.3], [lost] * 4
    assert distance(gone, gone) == 0.0
    assert distance(there, gone) == distance(gone, there) == math.inf
    assert relative(there, gone, lost) == math.inf
    assert spread([there, gone], 0.0) == spread([gone, there], 0.0) == math.inf
    assert spread([gone, gone], 0.0) == 0.0


def test_numbers_of_files_that_both_programs_lost_agree() -> None:
    tensor = {"type": "Tensor", "shape": [2], "dtype": "float64", "digest": [math.nan] * 4}
    saved = {"loss": math.nan, "weight": tensor}
    found = {"loss": float("nan"), "weight": {**tensor, "digest": [float("nan")] * 4}}
    assert tree_difference(saved, found, TOLERANCES["float64"]) is None
    assert tree_difference({"loss": math.nan}, {"loss": 0.5}, TOLERANCES["float64"]) is not None
