"""Findings as annotations of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Iterable

from autodist.report import Run, shown
from autodist.rule import Diagnostic, Severity

COMMANDS = {Severity.NOTE: "notice", Severity.WARNING: "warning", Severity.REFUSAL: "error"}


def render(runs: Iterable[Run]) -> str:
    """One workflow command per finding."""
    return "".join(f"{_annotation(diagnostic)}\n" for run in runs for diagnostic in run.findings)


def _annotation(diagnostic: Diagnostic) -> str:
    properties = {
        "file": shown(diagnostic.source.path),
        "line": str(diagnostic.line),
        "col": str(diagnostic.column),
        "title": f"{diagnostic.code} {diagnostic.rule}",
    }
    written = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in properties.items())
    return f"::{COMMANDS[diagnostic.severity]} {written}::{_escaped(diagnostic.message)}"


def _escaped(text: str, special: str = "") -> str:
    return "".join(f"%{ord(character):02X}" if character in f"%\r\n{special}" else character for character in text)
