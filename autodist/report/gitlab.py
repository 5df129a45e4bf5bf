"""Findings as GitLab's code quality report, which merge requests show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from autodist.report import Run, shown
from autodist.rule import Diagnostic, Severity

LEVELS = {Severity.NOTE: "info", Severity.WARNING: "major", Severity.REFUSAL: "critical"}


def render(runs: Iterable[Run]) -> str:
    """One issue per finding. A finding that moved to another line is the same: its fingerprint has no line."""
    issues: dict[str, dict[str, Any]] = {}
    for diagnostic in (each for run in runs for each in run.findings):
        number = 0
        while (fingerprint := _fingerprint(diagnostic, number)) in issues:
            number += 1
        issues[fingerprint] = _issue(diagnostic, fingerprint)
    return json.dumps(list(issues.values()), indent=2) + "\n"


def _issue(diagnostic: Diagnostic, fingerprint: str) -> dict[str, Any]:
    return {
        "check_name": diagnostic.code,
        "description": f"{diagnostic.code} {diagnostic.message}",
        "severity": LEVELS[diagnostic.severity],
        "fingerprint": fingerprint,
        "location": {"path": shown(diagnostic.source.path), "lines": {"begin": diagnostic.line}},
    }


def _fingerprint(diagnostic: Diagnostic, number: int) -> str:
    parts = (shown(diagnostic.source.path), diagnostic.code, diagnostic.message, str(number))
    return sha256("\0".join(parts).encode()).hexdigest()
