"""Fixtures of the verifier's tests: one process with torch for all of them, and the table of faults."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT / "fixtures" / "faults" / "pairs"


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with a small original and its right conversion, both to be edited freely."""
    name = getattr(request, "param", "classifier")
    for path in (PAIRS / name).glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    """Replace text that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
