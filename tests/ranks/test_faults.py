"""The scripts of `make check-faults`: nothing is said of the right ones, and each fault that is seeded is found."""

from __future__ import annotations

import pytest

from benchmarks.check_faults import FAULTS, SCRIPTS, Fault, found, is_found


@pytest.mark.parametrize("name", sorted(each.stem for each in SCRIPTS.glob("*.py")))
def test_right(name: str) -> None:
    assert not found((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: f"{each.kind} in {each.script}")
def test_seeded(fault: Fault) -> None:
    assert is_found(fault, found(fault.text))
