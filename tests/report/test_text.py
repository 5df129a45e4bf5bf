"""What a person reads: one line for each reason, and first what is left to do."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from conftest import SCRIPT, Autodist

from autodist.cli import cli
from autodist.config import Strategy
from autodist.report import Run
from autodist.report.text import grouped, summary
from autodist.result import Converted, Result
from autodist.rule import Diagnostic, Severity
from autodist.source import Source
from autodist.terminal import Terminal

NOTE, WARNING, REFUSAL = Severity.NOTE, Severity.WARNING, Severity.REFUSAL
ONE, OTHER = Source.parse("x\n", Path("one.py")), Source.parse("x\n", Path("other.py"))


def diagnostics(*found: tuple[int, str, Severity], source: Source = ONE) -> list[Diagnostic]:
    """Diagnostics of one rule, by line, reason and severity."""
    return [Diagnostic("AD301", "save-once", source, at, 1, why, None, how) for at, why, how in found]


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ([(3, "why", NOTE), (5, "why", NOTE)], ["one.py:3:1: AD301 why (also line 5)"]),
        (
            [(3, "why", NOTE), (5, "why", NOTE), (5, "why", NOTE), (9, "why", NOTE)],
            ["one.py:3:1: AD301 why (also lines 5, 9)"],
        ),
        ([(3, "why", NOTE), (3, "why", NOTE)], ["one.py:3:1: AD301 why"]),
        (
            [(3, "a", NOTE), (4, "b", NOTE), (5, "a", NOTE)],
            ["one.py:3:1: AD301 a (also line 5)", "one.py:4:1: AD301 b"],
        ),
        ([(3, "a", NOTE), (4, "b", WARNING)], ["one.py:4:1: warning: AD301 b", "one.py:3:1: AD301 a"]),
        ([(3, "a", WARNING), (4, "a", REFUSAL)], ["one.py:4:1: refusal: AD301 a", "one.py:3:1: warning: AD301 a"]),
        ([], []),
    ],
)
def test_a_reason_is_said_once(found: list[tuple[int, str, Severity]], lines: list[str]) -> None:
    assert [click.unstyle(each) for each in grouped(diagnostics(*found))] == lines


def test_files_are_kept_apart() -> None:
    both = diagnostics((3, "why", NOTE)) + diagnostics((3, "why", NOTE), source=OTHER)
    assert [click.unstyle(each)[:9] for each in grouped(both)] == ["one.py:3:", "other.py:"]


def test_what_needs_a_person_stands_first() -> None:
    result = Result((Converted(ONE, "x\n", "y\n"),), tuple(diagnostics((1, "fixed", NOTE), (2, "look", WARNING))))
    lines = click.unstyle(summary(Run(Strategy.DDP, result), quiet=False, verbose=True)).splitlines()
    assert lines[1] == "1 thing needs a person (`autodist rule AD301` says why):" and "look" in lines[2]
    assert lines[3:] == ["changed:", "  one.py:1:1: AD301 fixed"]


def test_check_says_each_finding_where_all_are_wanted(autodist: Autodist, script: Path) -> None:
    script.write_text(SCRIPT + 'torch.save(model.state_dict(), "again.pt")\n')
    few, all_of_them = autodist("check", "train.py"), autodist("check", "train.py", "--verbose")
    assert "AD301 every rank would write this (also line 15)" in few.stdout
    assert "train.py:15:1: AD301" in all_of_them.stdout and "also line" not in all_of_them.stdout


@pytest.mark.parametrize("command", [("check",), ("convert", "--diff")])
def test_a_rule_is_explained_at_its_lines(autodist: Autodist, script: Path, command: tuple[str, ...]) -> None:
    said = autodist(*command, "train.py", "--explain", "ad301").stderr
    assert "AD301 write-on-rank-zero" in said and "Nothing here" not in said
    assert '    14 | torch.save(model.state_dict(), "model.pt")  # keep me\n       | ^' in said
    assert "AD305 load-to-own-device" in autodist(*command, "train.py", "--explain", "AD305").stderr
    assert "finds nothing here" in autodist(*command, "train.py", "--explain", "AD305").stderr
    unknown = autodist(*command, "train.py", "--explain", "AD3")
    assert unknown.exit_code == 2 and "there is no rule AD3" in unknown.stderr


@pytest.mark.parametrize(
    ("environment", "color"),
    [({}, None), ({"NO_COLOR": "1"}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, None),
     ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)],
)  # fmt: skip
def test_colours(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: bool | None) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Terminal().color is color


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete(autodist: Autodist, shell: str) -> None:
    assert "_AUTODIST_COMPLETE" in autodist("completion", shell).stdout


@pytest.mark.parametrize("words", ["check --select AD30", "rule ad30", "convert --explain AD30"])
def test_codes_are_completed(words: str) -> None:
    from click.shell_completion import ShellComplete

    *given, begun = words.split()
    offered = ShellComplete(cli, {}, "autodist", "_AUTODIST_COMPLETE").get_completions(given, begun)
    assert "AD301" in [each.value for each in offered] and all(each.value.startswith("AD30") for each in offered)
