"""Input that cannot be converted: one line that says what and where, the right exit code, nothing written."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import SCRIPT, Autodist

from autodist import registry
from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.edits import RemoveStatement, ReplaceExpr
from autodist.errors import AutodistError
from autodist.project import Project
from autodist.result import Result
from autodist.rule import Applicability, Check, Context, Finding, Fix, Rule, Severity
from autodist.script import TrainingScript

CASES = {
    "missing": (None, "train.py: no such file"),
    "binary": (b"\x7fELF\0\0\1torch backward", "train.py: is a binary file"),
    "syntax": (b"import torch\nloss.backward(\n", "train.py:2: does not parse"),
    "python-2": (b"import torch\nloss.backward()\nprint 'done'\n", "train.py:3: does not parse"),
    "unknown-encoding": (b"# coding: klingon\nimport torch\nloss.backward()\n", "train.py:1: unknown encoding"),
    "wrong-encoding": (b"import torch\n# \xff\nloss.backward()\n", "train.py:2: is not valid"),
    "deep": (b"import torch\nloss.backward()\nx = " + b"(" * 5000 + b")" * 5000, "train.py:"),
    "missing-module": (b"from .data import x\nimport torch\n", "train.py:1: imports local module data"),
    "empty": (b"", "train.py:1:"),
    "trains-nothing": (b"import torch\n\nmodel = torch.nn.Linear(1, 1)\n", "train.py:1:"),
}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_nothing_written(autodist: Autodist, tmp_path: Path, name: str) -> None:
    data, message = CASES[name]
    if data is not None:
        (tmp_path / "train.py").write_bytes(data)
    before = content(tmp_path)
    for command in (["convert"], ["convert", "--in-place"], ["convert", "--output", "out.py"]):
        result = autodist(*command, "train.py")
        assert result.exit_code == (1 if name in ("empty", "trains-nothing") else 2), result.stderr
        assert message in result.stderr and result.stdout == ""
        assert len(result.stderr.splitlines()) == 1 and content(tmp_path) == before


def test_folder(autodist: Autodist, tmp_path: Path) -> None:
    result = autodist("convert", tmp_path)
    assert result.exit_code == 2 and "is a folder" in result.stderr


def test_circular_import_is_no_trouble(autodist: Autodist, script: Path) -> None:
    script.write_text("import data\n" + SCRIPT)
    script.with_name("data.py").write_text("import train\n")
    assert autodist("convert", "train.py").exit_code == 0


def test_read_only_target(autodist: Autodist, script: Path) -> None:
    script.chmod(0o444)
    result = autodist("convert", "train.py", "--in-place")
    assert result.exit_code == 2 and "train.py: is read-only" in result.stderr and script.read_text() == SCRIPT


def test_unwritable_folder(autodist: Autodist, script: Path) -> None:
    script.with_name("file").write_text("")
    result = autodist("convert", "train.py", "--output", "file/out.py")
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1 and "cannot be written" in result.stderr


@pytest.mark.skipif(os.name == "nt", reason="os.replace cannot be made to fail this way")
def test_all_or_nothing(autodist: Autodist, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last of several files cannot be made, none of them is."""
    (script.parent / "out" / "train.py").mkdir(parents=True)
    result = autodist("convert", "train.py", "--output", "out", "--force")
    assert result.exit_code == 2 and list((script.parent / "out" / "train.py").iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--in-place", "--diff"],
        ["train.py", "--output", "x.py", "--check"],
        ["-", "--in-place"],
        ["train.py", "-", "--diff"],
        [],
        ["train.py", "--strategy", "horovod"],
    ],
)
def test_usage(autodist: Autodist, script: Path, arguments: list[str]) -> None:
    result = autodist("convert", *arguments)
    assert result.exit_code == 2 and "Usage:" in result.stderr and script.read_text() == SCRIPT


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let the given functions be all rules: AD301, AD302, …"""

    def use(*checks: Check) -> None:
        codes = [f"AD30{number}" for number in range(1, len(checks) + 1)]
        rules = {code: Rule(code, frozenset(Strategy), check) for code, check in zip(codes, checks, strict=True)}
        monkeypatch.setattr(registry, "load", lambda: rules)

    yield use


def test_conflict_names_both_rules(only: Callable[..., None], script: Path) -> None:
    project = Project.load(script)
    last = project.entry.tree.body[-1]
    assert isinstance(last, ast.Expr)

    def check(text: str) -> Check:
        fix = Fix(((project.entry, ReplaceExpr(last.value, text)),))
        return lambda script, context: iter([Finding(project.entry, last, "every rank writes", fix)])

    only(check("first()"), check("second()"))
    with pytest.raises(AutodistError, match=rf"{script}:14: conflict between AD301 and AD302"):
        convert(project, Config())


def test_defect_in_a_rule_is_one_line(only: Callable[..., None], autodist: Autodist, script: Path) -> None:
    def broken(script: TrainingScript, context: Context) -> Iterator[Finding]:
        raise KeyError("lost")

    only(broken)
    result = autodist("convert", "train.py")
    assert result.exit_code == 2 and len(list(script.parent.iterdir())) == 1
    where = r"in rule AD301 at test_bad_input\.py:\d+ \(KeyError: 'lost'\)"
    assert re.fullmatch(rf"error: train\.py: internal error {where}: please report it\n", result.stderr)
    assert "Traceback" in autodist("convert", "train.py", "--verbose").stderr


def test_refusal_changes_nothing(only: Callable[..., None], script: Path) -> None:
    project = Project.load(script)
    finding = Finding(project.entry, project.entry.tree, "nothing to shard", severity=Severity.REFUSAL)
    node = project.entry.tree.body[-1]
    fixed = Finding(project.entry, node, "changed", Fix(((project.entry, RemoveStatement(node)),)))
    only(lambda script, context: iter([finding]), lambda script, context: iter([fixed]))
    result = convert(project, Config())
    assert result.refused and not result.changed and len(result.diagnostics) == 2


def test_fix_that_is_not_safe_needs_a_person(only: Callable[..., None], script: Path) -> None:
    project = Project.load(script)
    node = project.entry.tree.body[-1]

    def fixed(applicability: Applicability) -> Result:
        fix = Fix(((project.entry, RemoveStatement(node)),), applicability)
        only(lambda script, context: iter([Finding(project.entry, node, "why", fix)]))
        return convert(project, Config())

    safe, unsafe, display = (fixed(applicability) for applicability in Applicability)
    assert (bool(safe.changed), safe.needs_person) == (True, False)
    assert (bool(unsafe.changed), unsafe.needs_person) == (True, True)
    assert (bool(display.changed), display.needs_person) == (False, True)
