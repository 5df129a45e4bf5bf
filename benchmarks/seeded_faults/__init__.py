"""Seeds faults into right scripts that distribute themselves; ``make check-faults`` asks check about them.

The scripts (hand_written/seeded/) were written before check had been tried on any of them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.seeded_faults.files import File
from benchmarks.seeded_faults.kinds import KINDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCRIPTS = Path(__file__).parent.parent / "hand_written" / "seeded"
REWRITES = Path(__file__).parent / "rewrites.toml"
NAMES = (
    "functions trainer spawn several_files nanogpt reference imagenet fsdp2 hsdp by_hand accumulating classes".split()
)


@dataclass(frozen=True)
class Seeded:
    """A script with a fault in one of its files. ``places`` are the files and lines that may be named for it."""

    kind: str
    script: str
    file: str
    text: str
    codes: frozenset[str]
    places: frozenset[tuple[str, int]]
    at: int
    """The line that has changed."""

    @property
    def files(self) -> dict[str, str]:
        """All files of the script, the entry first."""
        return {**texts(self.script), self.file: self.text}


def texts(script: str) -> dict[str, str]:
    """The files of a right script, the entry first."""
    folder = SCRIPTS / script
    paths = sorted(folder.glob("*.py"), key=lambda path: path.stem != "train") if folder.is_dir() else []
    paths = paths or [SCRIPTS / f"{script}.py"]
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def seeded() -> Iterator[Seeded]:
    """All faults: of each kind one in each script that has a site for it, and those by hand."""
    for script in NAMES:
        for name, (codes, make) in KINDS.items():
            files = (File(script, file, text) for file, text in texts(script).items())
            found = next(((file, *each) for file in files for each in make(file)), None)
            if found is not None:
                place, made, where = found
                yield _seeded(name, script, place.name, made.result, codes, where, made.changed[0])
    for each in tomllib.loads(REWRITES.read_text(encoding="utf-8"))["fault"]:
        script, before = each["script"], each["before"]
        name = each.get("file") or next(iter(texts(script)))
        text = texts(script)[name]
        assert text.count(before) == 1, (script, before)
        at = text[: text.index(before)].count("\n") + 1
        text, codes = text.replace(before, each["after"]), frozenset(each["codes"].split())
        yield _seeded(each["kind"], script, name, text, codes, each["lines"], at)


def _seeded(
    kind: str, script: str, file: str, text: str, codes: frozenset[str], where: Sequence[int] | str, at: int
) -> Seeded:
    ast.parse(text)
    files = {**texts(script), file: text}
    if not isinstance(where, str):
        return Seeded(kind, script, file, text, codes, frozenset((file, line) for line in where), at)
    numbered = ((name, *line) for name, each in files.items() for line in enumerate(each.splitlines(), 1))
    places = frozenset((name, number) for name, number, line in numbered if re.search(where, line))
    return Seeded(kind, script, file, text, codes, places, at)
