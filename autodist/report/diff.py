"""Results as a unified diff that `git apply` and `patch -p1` understand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import unified_diff

from click import style

from autodist.report import shown
from autodist.result import Converted, Result


def diff(result: Result) -> str:
    """The diff of every file that changed."""
    return "".join(line for file in result.changed for line in _lines(file))


def colored(text: str) -> str:
    """A diff in the colours of git."""
    return "".join(_colored(line) for line in text.splitlines(keepends=True))


def _lines(file: Converted) -> Iterable[str]:
    name = shown(file.source.path)
    names = (name, name) if name.startswith(("/", "<")) else (f"a/{name}", f"b/{name}")
    for line in unified_diff(_split(file.before), _split(file.after), *names):
        yield line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n"


def _split(text: str) -> list[str]:
    """Lines as a compiler counts them (`str.splitlines` also ends lines at form feeds and in string literals)."""
    return [line for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text) if line]


def _colored(line: str) -> str:
    if line.startswith(("+++", "---")):
        return style(line, bold=True)
    color = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return style(line, fg=color) if color else line
