"""Every rule's examples and documentation."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from conftest import ROOT

from autodist import registry
from autodist.config import AVAILABLE, Config
from autodist.convert import convert
from autodist.project import Project
from autodist.rule import Example, Rule
from tools import docs

RULES = registry.load()
EXAMPLES = [
    pytest.param(rule, example, id=f"{code}-{number}")
    for code, rule in RULES.items()
    if rule.strategies & set(AVAILABLE)
    for number, example in enumerate(registry.examples(code))
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example, tmp_path: Path) -> None:
    before = dedent(example.before)
    (tmp_path / "train.py").write_text(before)
    strategy = next(each for each in AVAILABLE if each in rule.strategies)
    result = convert(Project.load(tmp_path / "train.py"), Config(strategy, select=(rule.code,), **example.options))  # type: ignore[arg-type]
    assert result.entry.after == (before if example.after is None else dedent(example.after))
    assert bool(result.diagnostics) == (example.after is not None)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rule_is_documented(rule: Rule) -> None:
    first, blank, *rest = rule.docs.splitlines()
    assert first.endswith(".") and not blank and rest
    examples = registry.examples(rule.code)
    assert any(example.after is None for example in examples), "one example must show when the rule is silent"
    assert any(example.after is not None for example in examples)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_file_is_named_after_the_rule(rule: Rule) -> None:
    assert rule.check.__module__ == f"autodist.rules.{rule.check.__name__}"


def test_documentation_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert docs.RULES.read_text(encoding="utf-8") == docs.rules(), "run `make docs`"
    text = docs.GUIDE.read_text(encoding="utf-8")
    assert text == docs.guide(text), "run `make docs`"
