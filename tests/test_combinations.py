"""Scripts that are put together at random: they are scripts, and a few of them stand for the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from benchmarks.combinations.__main__ import main, tried
from benchmarks.combinations.compose import LAYOUTS, chosen, script

SHOWN = range(24)


def test_each_layout_is_among_the_first() -> None:
    assert {chosen(number)[0] for number in SHOWN} == set(LAYOUTS)


@pytest.mark.parametrize("number", SHOWN)
def test_conversion_is_python(number: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(number), encoding="utf-8")
    result = convert(Project.load(path), Config(strategy=Strategy.DDP))
    if result.refused:
        assert any("write the loop over" in each.message for each in result.diagnostics)
    compile(result.entry.after, str(path), "exec")


@pytest.mark.parametrize("number", [1, 5])
def test_conversion_is_equal(number: int, tmp_path: Path) -> None:
    assert tried(number, "ddp", 2, tmp_path, None).outcome == "equal"


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "3"]) == 0
    assert capsys.readouterr().out == script(3)
