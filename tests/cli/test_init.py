"""``autodist init`` adds what is missing and changes nothing that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Autodist

from autodist.config import Strategy, load

yaml = pytest.importorskip("yaml")
OTHER = {"repo": "https://example.org/other", "rev": "v1", "hooks": [{"id": "other"}]}


def hooks(folder: Path) -> list[Any]:
    """The repositories of a configuration of pre-commit."""
    found = yaml.safe_load((folder / ".pre-commit-config.yaml").read_text())["repos"]
    assert isinstance(found, list)
    return found


def test_an_empty_folder(autodist: Autodist, tmp_path: Path) -> None:
    assert autodist("init", "--strategy", "fsdp").exit_code == 0
    assert load(tmp_path, {}).strategy is Strategy.FSDP
    ((hook,),) = (each["hooks"] for each in hooks(tmp_path))
    assert hook["entry"] == "autodist check" and hook["language"] == "system"
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    again = autodist("init")
    assert again.exit_code == 0 and again.stdout.count("left as it is") == 2
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "text",
    [
        "repos:\n- repo: https://example.org/other\n  rev: v1\n  hooks:\n  - id: other\n",
        "repos:\n  - repo: https://example.org/other\n    rev: v1\n    hooks:\n      - id: other",
        "# ours\nrepos:  # all\n    - repo: https://example.org/other\n      rev: v1\n      hooks: [{id: other}]\n\n\n",
        "repos:\n  - hooks: [{id: other}]\n    rev: v1\n    repo: https://example.org/other\n# the end\n",
        "repos:\n- repo: https://example.org/other\n  rev: v1\n  hooks:\n  - id: other\n\nci:\n  skip: [other]\n",
    ],
)
def test_hooks_are_added_to_others(autodist: Autodist, tmp_path: Path, text: str) -> None:
    (tmp_path / ".pre-commit-config.yaml").write_text(text)
    assert autodist("init").exit_code == 0
    other, own = hooks(tmp_path)
    assert other == OTHER and own["hooks"][0]["id"] == "autodist-check"
    after = (tmp_path / ".pre-commit-config.yaml").read_text()
    assert all(line in after for line in text.splitlines())
    assert "ci" not in text or yaml.safe_load(after)["ci"] == {"skip": ["other"]}


@pytest.mark.parametrize("text", ['[project]\nname = "a"', "[tool.black]\nline-length = 100\n\n\n", "# nothing\n"])
def test_options_are_added_to_others(autodist: Autodist, tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert autodist("init").exit_code == 0 and load(tmp_path, {}).strategy is Strategy.DDP
    assert (tmp_path / "pyproject.toml").read_text().startswith(text.rstrip())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("pyproject.toml", "[tool", "is not valid TOML"),
        ("pyproject.toml", "tool = {black = {line-length = 100}}\n", "write it yourself"),
        (".pre-commit-config.yaml", "repos: []\n", "add it yourself"),
        (".pre-commit-config.yaml", "fail_fast: true\n", "add it yourself"),
    ],
)
def test_what_cannot_be_added_to_is_left(
    autodist: Autodist, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    result = autodist("init")
    assert result.exit_code == 2 and message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.autodist]\nstrategy = "zero"\n'),
        (
            ".pre-commit-config.yaml",
            "repos:\n- repo: https://example.org/autodist\n  hooks: [{id: autodist-convert}]\n",
        ),
    ],
)
def test_what_is_there_stays(autodist: Autodist, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert autodist("init", "--strategy", "ddp").exit_code == 0
    assert (tmp_path / name).read_text() == text and len(list(tmp_path.iterdir())) == 2
