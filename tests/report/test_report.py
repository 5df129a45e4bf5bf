"""The forms of a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autodist.config import Strategy
from autodist.launch import commands
from autodist.report import Run, github, gitlab, markdown, sarif
from autodist.report.diff import diff
from autodist.result import Converted, Result
from autodist.rule import Diagnostic, Rule, Severity
from autodist.source import Source


def run(before: str, after: str, message: str = "why", severity: Severity = Severity.WARNING) -> Run:
    """A result with one diagnostic."""
    source = Source.parse(before, Path("a,b.py"))
    diagnostic = Diagnostic("AD301", "save-once", source, 1, 2, message, None, severity)
    return Run(Strategy.DDP, Result((Converted(source, before, after),), (diagnostic,)))


def test_github_escapes() -> None:
    text = github.render([run("x\n", "x\n", "100%, a: b\nc")])
    assert text == "::warning file=a%2Cb.py,line=1,col=2,title=AD301 save-once::100%25, a: b%0Ac\n"


def test_gitlab_tells_equal_findings_apart() -> None:
    """A fingerprint names one finding, and the same one after lines above it have moved."""
    issues = json.loads(gitlab.render([run("x\n", "x\n"), run("x\n", "x\n"), run("x\n", "x\n", "other")]))
    assert len({each["fingerprint"] for each in issues}) == 3
    assert issues[0]["location"] == {"path": "a,b.py", "lines": {"begin": 1}} and issues[0]["severity"] == "major"


def test_markdown_escapes() -> None:
    assert "| a \\| b c |" in markdown.render([run("x\n", "x\n", "a | b\nc")])


def test_sarif() -> None:
    def save_once() -> None:
        """Save once.

        Why.
        """

    rule = Rule("AD301", frozenset(Strategy), save_once)  # type: ignore[arg-type]
    document = json.loads(sarif.render([run("x\n", "x\n")], {"AD301": rule}))
    (result,) = document["runs"][0]["results"]
    assert (result["level"], result["locations"][0]["physicalLocation"]["region"]["startLine"]) == ("warning", 1)
    assert document["runs"][0]["tool"]["driver"]["rules"][0]["shortDescription"]["text"] == "Save once."


def test_notes_are_no_findings() -> None:
    assert github.render([run("x\n", "x\n", severity=Severity.NOTE)]) == ""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a\n", "b\n", "-a\n+b\n"),
        ("a", "b", "-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n", " a\r\n-b\r\n+c\r\n"),
        ("x = '\f'\n", "y = '\f'\n", "-x = '\f'\n+y = '\f'\n"),
    ],
)
def test_diff(before: str, after: str, expected: str) -> None:
    head, body = diff(run(before, after).result).split("@@\n", 1)
    assert head.startswith("--- a/a,b.py\n+++ b/a,b.py\n@@ ") and body == expected


def test_launch_commands_are_quoted() -> None:
    one, node, nodes = (launch.command for launch in commands(Path("my folder/train_ddp.py")))
    assert one == "python 'my folder/train_ddp.py'"
    assert node == "torchrun --standalone --nproc-per-node 2 'my folder/train_ddp.py'"
    assert "--rdzv-id train_ddp " in nodes
