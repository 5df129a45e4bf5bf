"""The tools of contributors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import new_rule


def test_new_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_rule, "RULES", tmp_path)
    assert new_rule.main("AD310", "close_writers") is None
    text = (tmp_path / "close_writers.py").read_text()
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["close_writers"]
    assert "taken by rules/close_writers.py" in str(new_rule.main("AD310", "open_writers"))
    assert "exists" in str(new_rule.main("AD311", "close_writers"))
    assert "AD and three digits" in str(new_rule.main("E501", "close_writers"))
    assert "words_like_this" in str(new_rule.main("AD311", "CloseWriters"))
