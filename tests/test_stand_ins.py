"""The stand-ins for public data sets are written alike each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stand_ins.__main__ import main, names

pytest.importorskip("PIL")


@pytest.mark.parametrize("name", names())
def test_a_stand_in(tmp_path: Path, name: str) -> None:
    def written(folder: Path) -> dict[str, bytes]:
        main([str(folder), name])
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    first = written(tmp_path / "first")
    assert first and len({path.split("/")[0] for path in first}) == 1
    assert first == written(tmp_path / "second")
