"""Every fixture is run: the original in one process, its conversion on several ranks; what a user sees is compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_goldens import CASES, converted, settings

from autodist.config import Strategy

STAND_INS = Path(__file__).parent / "stand_ins"
"""Libraries that originals need and that are not installed, in small."""


def runs() -> list[object]:
    """One run for each fixture that converts, at each of its world sizes; `make test` leaves out all but the first."""
    return [
        pytest.param(case, nproc, id=f"{case.name}-{nproc}", marks=[pytest.mark.slow] if index else [])
        for case in CASES
        for index, nproc in enumerate(settings(case)["nproc"])
        if settings(case)["expect"] == "equal" and settings(case).get("run", True)
    ]


@pytest.mark.parametrize(("case", "nproc"), runs())
def test_conversion_trains_the_same_model(case: Path, nproc: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    fixture = settings(case)
    before = case / "before"
    for file in converted(before, fixture["entry"], Strategy.DDP).files:
        target = tmp_path / file.source.path.relative_to(before)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.source.encode(file.after))
    command = [
        sys.executable,
        "-m",
        "autodist.verify",
        str(before / fixture["entry"]),
        str(tmp_path / fixture["entry"]),
    ]
    options = ["--nproc", str(nproc), "--workdir", str(before), "--timeout", "120", "--", *map(str, fixture["args"])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(STAND_INS), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=400, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
