"""Findings as SARIF 2.1.0, the format that code-scanning services read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from autodist.report import Run, shown, tool_version
from autodist.rule import Diagnostic, Rule, Severity

LEVELS = {Severity.NOTE: "note", Severity.WARNING: "warning", Severity.REFUSAL: "error"}


def render(runs: Iterable[Run], rules: Mapping[str, Rule]) -> str:
    """The log of one run. It describes those of ``rules`` that found something."""
    findings = [diagnostic for run in runs for diagnostic in run.findings]
    codes = sorted({diagnostic.code for diagnostic in findings})
    driver = {
        "name": "autodist",
        "semanticVersion": tool_version(),
        "rules": [_rule(rules[code]) for code in codes],
    }
    results = [_result(diagnostic, codes.index(diagnostic.code)) for diagnostic in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.docs},
        "help": {"text": rule.docs},
    }


def _result(diagnostic: Diagnostic, index: int) -> dict[str, Any]:
    location = {
        "artifactLocation": {"uri": quote(shown(diagnostic.source.path))},
        "region": {"startLine": diagnostic.line, "startColumn": diagnostic.column},
    }
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": index,
        "level": LEVELS[diagnostic.severity],
        "message": {"text": diagnostic.message},
        "locations": [{"physicalLocation": location}],
    }
