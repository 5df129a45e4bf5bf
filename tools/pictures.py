"""The pictures of the documents, made from what the commands say: ``make pictures``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from difflib import SequenceMatcher
from io import StringIO
from pathlib import Path

import rich.console
from rich.text import Text

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.rule import Diagnostic

ROOT = Path(__file__).parent.parent
EXAMPLE, PICTURES = ROOT / "examples" / "pull_request", ROOT / "docs" / "pictures"
LONG, SHOWN, AROUND = 12, 5, 1
"""Lines from which on an insertion is long, of it that are shown, and of the code around a change."""
SESSION = (
    "autodist convert train.py --strategy ddp",
    "autodist verify train.py train_ddp.py --nproc 2,4 -- --epochs 1",
)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Of a picture that would be loaded from elsewhere."""


def changes() -> Text:
    """The diff of the example, with the reason beside the first line of each change."""
    result = convert(Project.load(EXAMPLE / "train.py"), Config())
    before, after = result.entry.before.splitlines(), result.entry.after.splitlines()
    reasons = list(result.diagnostics)
    text = Text()
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(AROUND):
        for tag, first, last, start, end in group:
            if tag == "equal":
                text.append("".join(f"  {line}\n" for line in before[first:last]))
                continue
            for line in before[first:last]:
                text.append(f"- {line}\n", "red")
            found = [*_of(reasons, first, last)]
            beside: dict[int, str] = {}
            for each in found:
                at, why = _likest(before[each.line - 1], after[start:end]), each.message.partition(";")[0]
                beside[at] = f"{beside[at]} · {why}" if at in beside else why
            text.append_text(_added(after[start:end], beside))
        text.append("\n")
    return text


def _of(reasons: list[Diagnostic], first: int, last: int) -> Iterator[Diagnostic]:
    """The reasons that stand in lines that go, or at the line before which others come."""
    for each in [*reasons]:
        if first < each.line <= max(last, first + 1):
            reasons.remove(each)
            yield each


def _likest(line: str, lines: list[str]) -> int:
    """Which of some lines has most of another."""
    return max(range(len(lines)), key=lambda number: SequenceMatcher(None, line, lines[number]).ratio(), default=0)


def _added(lines: list[str], reasons: dict[int, str]) -> Text:
    text = Text()
    shown = SHOWN if len(lines) > LONG else len(lines)
    width = max(map(len, lines[:shown]), default=0)
    for number, line in enumerate(lines[:shown]):
        text.append(f"+ {line:{width if number in reasons else 0}}", "green")
        text.append(f"  {reasons[number]}" if number in reasons else "", "italic cyan")
        text.append("\n")
    if shown < len(lines):
        text.append(f"+ ... {len(lines) - shown} more lines: how the ranks learn of each other\n", "dim green")
    return text


def session() -> Text:
    """A session at the terminal: the commands and what they say, but for how long it took."""
    text = Text()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train.py").write_bytes((EXAMPLE / "train.py").read_bytes())
        for line in SESSION:
            text.append(f"$ {line}\n", "bold")
            command = [sys.executable, "-m", "autodist", *line.split()[1:]]
            env = {**os.environ, "FORCE_COLOR": "1", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                command, cwd=name, env=env, stdout=-1, stderr=subprocess.STDOUT, text=True, check=True
            )
            told = [
                each
                for each in done.stdout.splitlines()
                if not re.match(r"  conversion .* s$|.* (on|in) .*ranks?( read)?$", each)
            ]
            text.append_text(Text.from_ansi("\n".join(told)))
            text.append("\n\n")
    return text


def picture(text: Text, title: str, width: int) -> str:
    """An SVG of a terminal that shows a text."""
    console = rich.console.Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(text, end="")
    return FONTS.sub("", console.export_svg(title=title, unique_id="autodist"))


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "changes.svg").write_text(picture(changes(), "autodist convert train.py --diff", 156), encoding="utf-8")
    (PICTURES / "session.svg").write_text(picture(session(), "autodist", 156), encoding="utf-8")
