"""The commands of docs/cluster.md."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Autodist

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.startswith("    ")]


def test_commands_of_autodist(autodist: Autodist, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("train_ddp*", "data")
    )
    own = [each for each in COMMANDS if each.startswith("autodist ") and " verify " not in each]
    assert len(own) == 7
    for line in own:
        words = shlex.split(line.partition(" > ")[0])[1:]
        done = autodist(*words)
        assert done.exit_code == 0, (line, done.output)
    said = autodist(*words[:4], "--nodes", "4", "--gpus", "8")
    quoted = re.search(r"`(args\.batch_size = .*?)`", PAGE)
    assert quoted is not None and quoted[1] in said.stderr


@pytest.mark.slow
def test_verifying_on_two_nodes(autodist: Autodist, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("train_ddp*", "data")
    )
    for line in (each for each in COMMANDS if each.startswith(("autodist convert", "autodist verify"))):
        done = autodist(*shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
    assert "on 2 nodes" in done.stdout
