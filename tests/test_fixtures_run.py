"""Every fixture is run: the original in one process, its conversion on several ranks; what a user sees is compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_goldens import CASES, converted, settings, strategies

from autodist.config import Strategy
from autodist.verify import Outcome, verify
from autodist.verify.command import as_text
from autodist.verify.launch import Zygote

SHARDED = {"ema_deepcopy_teacher", "encode_decode_methods", "resume_checkpoint", "transformer_lm_tied_warmup"}
"""The fixtures that `make test` also runs under strategies other than DDP; `make fixtures` runs all."""

STAND_INS = Path(__file__).parent / "stand_ins"
"""Libraries that originals need and that are not installed, in small."""


def runs() -> list[object]:
    """One run for each fixture that converts, at each of its world sizes; `make test` leaves out all but the first."""
    return [
        pytest.param(
            case,
            strategy,
            nproc,
            id=f"{case.name}-{strategy.value}-{nproc}",
            marks=[pytest.mark.slow] if index or (strategy is not Strategy.DDP and case.name not in SHARDED) else [],
        )
        for case in CASES
        for strategy in strategies(case)
        for index, nproc in enumerate(settings(case, strategy)["nproc"])
        if settings(case, strategy)["expect"] == "equal" and settings(case, strategy).get("run", True)
    ]


@pytest.mark.parametrize(("case", "strategy", "nproc"), runs())
def test_conversion_trains_the_same_model(
    case: Path, strategy: Strategy, nproc: int, tmp_path: Path, zygote: Zygote | None
) -> None:
    pytest.importorskip("torch")
    fixture = settings(case, strategy)
    for library in fixture.get("needs", []):
        pytest.importorskip(library)
    before = case / "before"
    for file in converted(before, fixture["entry"], strategy, fixture.get("options")).files:
        target = tmp_path / file.source.path.relative_to(before)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.source.encode(file.after))
    verdict = verify(
        before / fixture["entry"],
        tmp_path / fixture["entry"],
        [nproc],
        [str(each) for each in fixture.get("args", [])],
        dtype=fixture.get("dtype", "float64"),
        timeout=200,
        env={"PYTHONPATH": os.pathsep.join([str(STAND_INS), os.environ.get("PYTHONPATH", "")])},
        workdir=before,
        nnodes=fixture.get("nnodes", 1),
        zygote=zygote,
    )
    assert verdict.outcome is Outcome.EQUAL, as_text(verdict)
