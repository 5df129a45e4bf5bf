"""The scripts of `make check-faults`: nothing is said of the right ones, and each fault that is seeded is found."""

from __future__ import annotations

import pytest

from benchmarks.check_faults import FAULTS, SCRIPTS, Fault, found, found_in, is_found, is_named
from benchmarks.seeded_faults import NAMES, Seeded, seeded, texts

ALL = [*seeded()]
FIRST = {each.kind: each for each in reversed(ALL)}
"""One fault of each kind, of those that a generator seeds: `make check-faults` tries all."""
NOT_FOUND = frozenset(["micro-batches summed", "group never left"])
"""The second is said only where `--select AD109` asks for it."""


@pytest.mark.parametrize("name", sorted(each.stem for each in SCRIPTS.glob("*.py")))
def test_right(name: str) -> None:
    assert not found((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: f"{each.kind} in {each.script}")
def test_seeded(fault: Fault) -> None:
    assert is_found(fault, found(fault.text))


@pytest.mark.parametrize("name", NAMES)
def test_right_in_other_styles(name: str) -> None:
    assert not found_in(texts(name))


@pytest.mark.parametrize("fault", FIRST.values(), ids=lambda each: f"{each.kind} in {each.script}")
def test_generated(fault: Seeded) -> None:
    assert is_named(fault, found_in(fault.files)) is (fault.kind not in NOT_FOUND)


def test_there_are_faults_enough() -> None:
    assert len(ALL) >= 250 and len(FIRST) == 38
