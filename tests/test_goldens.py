"""The fixtures convert to exactly their goldens. ``pytest --update`` rewrites those."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = sorted(path.parent for path in (ROOT / "fixtures").glob("*/fixture.toml"))


def strategies(case: Path) -> list[Strategy]:
    """Every fixture is converted to DDP and FSDP, and to what else has a table in its fixture.toml."""
    table = tomllib.loads((case / "fixture.toml").read_text(encoding="utf-8"))
    return [each for each in Strategy if each in (Strategy.DDP, Strategy.FSDP) or each.value in table]


MATRIX = [
    pytest.param(case, strategy, id=f"{case.name}-{strategy.value}") for case in CASES for strategy in strategies(case)
]
GOLDENS = [
    path for case in CASES for strategy in strategies(case) for path in sorted((case / strategy.value).rglob("*.py"))
]


def converted(folder: Path, entry: str, strategy: Strategy, options: Mapping[str, Any] | None = None) -> Result:
    """The result of converting the script in a folder."""
    return convert(Project.load(folder / entry), Config(strategy, **(options or {})))


def content(result: Result, folder: Path) -> dict[str, bytes]:
    """What the golden folder must hold: every file of the project, unless refused, and what the rules say."""
    files = (
        {}
        if result.refused
        else {file.source.path.relative_to(folder).as_posix(): file.source.encode(file.after) for file in result.files}
    )
    return {**files, "diagnostics.txt": lines(result).encode()}


def settings(case: Path, strategy: Strategy = Strategy.DDP) -> dict[str, Any]:
    """What fixture.toml says; a table named after a strategy overrides the rest."""
    table = tomllib.loads((case / "fixture.toml").read_text(encoding="utf-8"))
    return {**table, **table.get(strategy.value, {})}


def lines(result: Result) -> str:
    """What the rules say, one line each, as golden text. Reasons belong to the goldens: a reader sees them."""
    return "".join(
        f"{each.source.path.name}:{each.line}: {each.severity.value}: {each.code} {each.message}\n"
        for each in result.diagnostics
    )


@pytest.mark.parametrize(("case", "strategy"), MATRIX)
def test_golden(case: Path, strategy: Strategy, request: pytest.FixtureRequest) -> None:
    fixture = settings(case, strategy)
    result = converted(case / "before", fixture["entry"], strategy, fixture.get("options"))
    files = content(result, case / "before")
    golden = case / strategy.value
    if request.config.getoption("--update"):
        shutil.rmtree(golden, ignore_errors=True)
        for name, data in files.items():
            (golden / name).parent.mkdir(parents=True, exist_ok=True)
            (golden / name).write_bytes(data)
    found = [path for path in golden.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.relative_to(golden).as_posix(): path.read_bytes() for path in found} == files


@pytest.mark.parametrize(("case", "strategy"), MATRIX)
def test_outcome(case: Path, strategy: Strategy) -> None:
    """A fixture is converted, or left to a person: refused, converted with a warning, or already distributed."""
    fixture = settings(case, strategy)
    result = converted(case / "before", fixture["entry"], strategy, fixture.get("options"))
    outcome = "equal" if result.changed and not result.needs_person else "refused"
    assert outcome in (fixture["expect"], *fixture.get("accept", [])), lines(result)


@pytest.mark.parametrize(("case", "strategy"), MATRIX)
def test_converting_twice_changes_nothing(case: Path, strategy: Strategy) -> None:
    fixture = settings(case, strategy)
    entry = fixture["entry"]
    if (case / strategy.value / entry).exists():
        result = converted(case / strategy.value, entry, strategy, fixture.get("options"))
        assert not result.changed and not result.refused, lines(result)


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: "-".join(path.parts[-3:]))
def test_golden_is_python_3_10(path: Path) -> None:
    ast.parse(path.read_bytes(), feature_version=(3, 10))
