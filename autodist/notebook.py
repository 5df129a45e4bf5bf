"""From a Jupyter notebook to a script: the code of its cells, with what only a notebook understands taken out."""

from __future__ import annotations

import ast
import json
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError

SUFFIX = ".ipynb"
KEPT_BODIES = frozenset({"%%time", "%%timeit", "%%capture", "%%prun"})
"""Cell magics around Python code."""
COMMAND = re.compile(r"^(\s*)(%%?[A-Za-z]|!|\?)|^% [A-Za-z]\w*(?:\s|$)")
ASSIGNED = re.compile(r"^\s*[\w., ]+=\s*(%[A-Za-z]|!)")
ASKED = re.compile(r"^\s*[\w.]+\?{1,2}\s*$")
WRITTEN = re.compile(r"%%(?:writefile|file)\s+([\"']?)(\S+\.py)\1\s*\n(.*)", re.DOTALL)
STARTED = re.compile(r"^!(.*(?:torchrun|torch\.distributed\.(?:run|launch))\s.*)$", re.MULTILINE)
VARIABLE = re.compile(r"\{\w|\$[A-Za-z_]\w*")
"""Of Python, in a shell command: `!wget {url}`"""
TIMED = re.compile(r"^(\s*)%(?:time|timeit|prun)\s+(?!-)(\S.*)$")


@dataclass(frozen=True)
class LeftOut:
    """A magic or shell command, in its line of the script. ``matters`` unless it only concerns the notebook."""

    line: int
    command: str
    cell: str = ""
    """What does the same in another notebook; nothing where it needs the code around it, or its variables."""

    @property
    def again(self) -> bool:
        """Whether a notebook that is made of the script does it, so that nobody has to."""
        return self.is_shell and bool(self.cell)

    @property
    def is_shell(self) -> bool:
        """Whether it runs a program: what that leaves behind the script may need."""
        return self.command.startswith(("!", "%%bash", "%%sh", "%%writefile", "%cd", "%run", "%env", "%pip", "%conda"))


@dataclass(frozen=True)
class Script:
    """The text of a notebook's code, and the commands that became comments in it."""

    text: str
    left_out: tuple[LeftOut, ...]


def script_name(path: Path) -> str:
    """How the script is called that a file holds: for `net.ipynb` `net.py`, unless a module beside it has that name."""
    if path.suffix != SUFFIX:
        return path.name
    return f"{path.stem}_notebook.py" if path.with_suffix(".py").exists() else f"{path.stem}.py"


def script(data: bytes, path: Path) -> Script:
    """The script in the bytes of a notebook. Raises AutodistError."""
    lines: list[str] = []
    left_out: list[LeftOut] = []
    cells = [*_code_cells(data, path)]
    if (started := _started(cells)) is not None:
        return Script(started, ())
    for number, cell in enumerate(cells, 1):
        if not cell.strip():
            continue
        if lines:
            lines.append("")
        for line, command in _commands_out(cell, path, number):
            lines.append(line)
            if command is not None:
                left_out.append(LeftOut(len(lines), command, _alone(cell, line, command)))
    return Script("\n".join(lines) + "\n", tuple(left_out))


def _started(cells: Sequence[str]) -> str | None:
    """The script that one cell writes to a file and another starts on several ranks."""
    written = {found[2]: found[3] for cell in cells if (found := WRITTEN.match(cell.lstrip("\n")))}
    for cell in cells:
        for command in STARTED.findall(cell):
            if found := next((word for word in command.split() if word in written), None):
                return f"{written[found]}\n"
    return None


def _alone(cell: str, stand_in: str, command: str) -> str:
    """A command as a cell of its own, if it can be one."""
    if stand_in[:1] != "#" or command.startswith("%run"):
        return ""
    if command.startswith("%%"):
        return cell.strip("\n")
    return "" if VARIABLE.search(command) else command


def made_of(
    scripts: Mapping[str, str], command: str, like: bytes, left_out: Sequence[LeftOut] = (), end: int = 0
) -> str:
    """A notebook that writes scripts to files and runs a command. What was left out of the script runs before it, and
    after it where it stood behind line ``end``. ``like`` is the notebook that it was, whose kernel it takes."""
    setup = [each for each in left_out if each.again]
    folders = sorted({str(parent) for name in scripts for parent in [Path(name).parent] if parent != Path()})
    cells = [
        *_joined_cells(each.cell for each in setup if each.line <= end),
        *([f"!mkdir -p {' '.join(map(shlex.quote, folders))}"] if folders else []),
        *(f"%%writefile {_quoted(name)}\n{text}" for name, text in scripts.items()),
        f"!{command}",
        *_joined_cells(each.cell for each in setup if each.line > end),
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content: dict[str, Any] = {
        "cells": [
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": _lines(cell)}
            for cell in cells
        ],
        "metadata": (json.loads(like).get("metadata") if like else None) or kernel,
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _joined_cells(commands: Iterable[str]) -> list[str]:
    """Commands of a line each in one cell, until one needs a cell of its own."""
    cells: list[str] = []
    for command in commands:
        if cells and not command.startswith("%%") and not cells[-1].startswith("%%"):
            cells[-1] += f"\n{command}"
        else:
            cells.append(command)
    return cells


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _lines(cell: str) -> list[str]:
    return re.split(r"(?<=\n)", cell.removesuffix("\n"))


def _code_cells(data: bytes, path: Path) -> Iterator[str]:
    try:
        notebook = json.loads(data)
        cells = notebook["cells"] if "cells" in notebook else _cells_of_version_3(notebook)
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        code = [_text(cell) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AutodistError("is not a Jupyter notebook", path) from None
    if language.lower() != "python":
        raise AutodistError(f"is a notebook in {language}, not in Python", path)
    yield from code


def _cells_of_version_3(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return (source if isinstance(source, str) else "".join(source)).replace("\r\n", "\n").rstrip("\n")


def _commands_out(cell: str, path: Path, number: int) -> Iterator[tuple[str, str | None]]:
    """The lines of a cell, with the command that each held."""
    lines = cell.split("\n")
    if _parses(cell):
        yield from ((line, None) for line in lines)
        return
    first = next(line for line in lines if line.strip())
    if first.startswith("%%") and first.split()[0] not in KEPT_BODIES:
        yield f"# {first}", first
        yield from ((f"# {line}".rstrip(), None) for line in lines[lines.index(first) + 1 :])
        return
    whole: list[tuple[str, str | None]] = []
    for line in _joined(lines):
        if ASSIGNED.match(line):
            what = line.strip()
            raise AutodistError(f"cell {number}: `{what}` needs a notebook: replace it by Python code", path)
        timed = TIMED.match(line)
        if timed is not None:
            whole.append((f"{timed[1]}{timed[2]}", None))
        elif COMMAND.match(line) or ASKED.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            command = re.sub(r"^% ", "%", line.strip())  # as older notebooks wrote it
            stand_in = f"{indent}pass  # {command}" if indent else f"# {command}"
            whole.append((stand_in.replace("\n", " "), command))
        else:
            whole += [(part, None) for part in line.split("\n")]
    yield from whole


def _joined(lines: list[str]) -> Iterator[str]:
    """The lines, with shell commands that go on after a backslash in one."""
    pending = ""
    for line in lines:
        if pending:
            line, pending = f"{pending} {line.strip()}", ""
        if COMMAND.match(line) and line.endswith("\\"):
            pending = line.rstrip("\\").rstrip()
        else:
            yield line
    if pending:
        yield pending


def _parses(cell: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(cell)
    except (SyntaxError, ValueError):
        return False
    return True
