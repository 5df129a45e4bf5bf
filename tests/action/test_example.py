"""The sample repository: its conversion is that of today, and the commands of its recipes run."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Autodist

EXAMPLE = ROOT / "examples" / "pull_request"
RECIPES = [path for path in EXAMPLE.rglob("*") if path.suffix in (".yml", ".yaml")]
COMMANDS = sorted(
    {
        found
        for path in RECIPES
        for found in re.findall(r"- (?:run: )?(autodist [^|>\n]+)", path.read_text(encoding="utf-8"))
    }
)


def test_the_conversion_is_that_of_today(autodist: Autodist, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "train.py", tmp_path)
    assert autodist("convert", "train.py", "--quiet").exit_code == 0
    assert (tmp_path / "train_ddp.py").read_text() == (EXAMPLE / "train_ddp.py").read_text()


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_recipes(autodist: Autodist, tmp_path: Path, command: str) -> None:
    for path in EXAMPLE.glob("*.py"):
        shutil.copy(path, tmp_path)
    result = autodist(*shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert "report.html" not in command or (tmp_path / "report.html").exists()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_actions_of_others_are_pinned(path: Path) -> None:
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert all(re.search("@[0-9a-f]{40}$", each) for each in used if not each.startswith("OWNER/"))
