"""The tools of contributors."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autodist.config import Config
from autodist.project import Project
from tools import compare, new_rule, release


def test_new_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_rule, "RULES", tmp_path)
    assert new_rule.main("AD310", "close_writers") is None
    text = (tmp_path / "close_writers.py").read_text()
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["close_writers"]
    assert "taken by rules/close_writers.py" in str(new_rule.main("AD310", "open_writers"))
    assert "exists" in str(new_rule.main("AD311", "close_writers"))
    assert "AD and three digits" in str(new_rule.main("E501", "close_writers"))
    assert "words_like_this" in str(new_rule.main("AD311", "CloseWriters"))


def test_versions_agree() -> None:
    assert release.versions() == release.version()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("CHANGELOG.md", "## 0.1.0", "## Unreleased", "CHANGELOG.md begins with Unreleased, not with 0.1.0"),
        ("CHANGELOG.md", "## 0.1.0", "## 0.2.0\n\nNext.\n\n## 0.1.0", "begins with 0.2.0"),
        ("CITATION.cff", "version: 0.1.0", "version: 0.0.9", "CITATION.cff has version 0.0.9"),
        ("examples/pull_request/.pre-commit-config.yaml", "rev: v0.1.0", "rev: v0.0.9", "names v0.0.9"),
        ("docs/guides/pull-requests.md", "autodist@v0.1.0", "autodist@v0.2.0", "names v0.2.0"),
    ],
)
def test_a_version_that_was_forgotten(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    for path in ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", name):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((release.ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    assert release.versions(tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(release.Unfit, match=message):
        release.versions(tmp_path)


def test_conversions_are_compared(tmp_path: Path, script: Path) -> None:
    """Each is kept once, with all that it is made of, and converted again."""
    (tmp_path / "helper.py").write_text("N = 8\n")
    script.write_text("from helper import N\n" + script.read_text().replace("batch_size=8", "batch_size=N"))
    kept = compare.Kept.of(Project.load(script), Config())
    for _ in range(2):
        compare.keep(kept, tmp_path / "kept")
    [path] = (tmp_path / "kept").iterdir()
    made = compare.conversions(tmp_path / "kept")
    assert kept.files.keys() == {"train.py", "helper.py"} and any("DDP(" in each for each in made[path.name])
    assert not list(compare.differences(made, made))
    less = {name: [each for each in lines if "DDP(" not in each] for name, lines in made.items()}
    [(name, lines)] = compare.differences(made, less)
    assert name == path.name and lines and all(each.startswith("-") and "DDP(" in each for each in lines)
