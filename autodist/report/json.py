"""Results as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from autodist.report import Run, shown, tool_version
from autodist.report.diff import diff
from autodist.rule import Diagnostic


def render(runs: Iterable[Run], with_diff: bool) -> str:
    """The document. With ``with_diff``, each script's diff stands in it."""
    tool = {"name": "autodist", "version": tool_version()}
    scripts = [_script(run) | ({"diff": diff(run.result)} if with_diff else {}) for run in runs]
    return json.dumps({"schema": 1, "tool": tool, "scripts": scripts}, indent=2) + "\n"


def _script(run: Run) -> dict[str, Any]:
    return {
        "entry": shown(run.entry),
        "strategy": run.strategy.value,
        "refused": run.result.refused,
        "needs_person": run.result.needs_person,
        "files": [{"path": shown(file.source.path), "changed": file.changed} for file in run.result.files],
        "outputs": [shown(path) for path in run.outputs],
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in run.result.diagnostics],
        "launch": [{"label": launch.label, "command": launch.command} for launch in run.launches],
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "rule": diagnostic.rule,
        "path": shown(diagnostic.source.path),
        "line": diagnostic.line,
        "column": diagnostic.column,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "fix": None if diagnostic.fix is None else diagnostic.fix.applicability.value,
    }
