"""Commands that documents tell people to type are commands that there are, with these options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from conftest import ROOT

from autodist.cli import cli

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "skills").rglob("*.md"))]
TYPED = re.compile(r"(?m)^ *(?:\$ |- )?(autodist [a-z]+(?: [-a-zA-Z].*)?)$|`(autodist [a-z]+(?: [^`]*)?)`")
PROSE = "autodist turns"


def commands(path: Path) -> list[str]:
    """What is typed in the blocks and the lines of a page."""
    found = TYPED.findall(path.read_text(encoding="utf-8"))
    lines = [re.split(r"  +#| \| | > ", block or inline)[0] for block, inline in found]
    return [line for line in lines if not line.startswith(PROSE)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_are_there(path: Path) -> None:
    for line in commands(path):
        if "…" in line or "COMMAND" in line:
            continue
        _, name, *rest = shlex.split(line, comments=True)
        assert name in cli.commands, line
        try:
            cli.commands[name].make_context(name, rest, resilient_parsing=True)
        except click.ClickException as error:
            pytest.fail(f"{line}: {error.format_message()}")


def test_commands_are_found() -> None:
    assert any("--changed" in line or "doctor" in line for path in PAGES for line in commands(path))
    assert sum(len(commands(path)) for path in PAGES) > 40
