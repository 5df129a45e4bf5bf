"""How values lie over ranks as they were measured, kept in a file: by their place, and the digest of its text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError

VERSION = 1
WAYS = ("rows", "mean", "sum", "max", "min", "mixed")
"""How a value on the whole batch follows from those on its shares."""


@dataclass(frozen=True)
class Measured:
    """How the value of one expression lies, whenever it is computed from samples of which each rank has its share."""

    file: str
    """Relative to the folder that holds all files of the project."""
    line: int
    expression: str
    digest: str
    """Of the text of its function, or of its statement outside of any."""
    place: tuple[int, int]
    """Its line, from the first of that text, and its column."""
    operation: str
    """What it calls, as reading resolves the name."""
    lies: str
    """One of WAYS."""
    axis: int | None = None
    """Along which the shares are joined, of rows."""
    axes: int | None = None
    """How many axes it has, where that never differs."""
    weight: str = ""
    """Of a mean, what weighs the shares, unless that is their numbers of samples."""
    given: tuple[str, ...] = ()
    """How what it is computed from may lie, in words."""
    mixes: str = ""
    """Of what is mixed, the operation that does it, and its line."""
    occurrences: int = 0
    steps: int = 0

    def __str__(self) -> str:
        texts = {
            "rows": f"the ranks' rows joined along axis {self.axis}",
            "mean": f"the mean over the ranks, weighted by {self.weight or 'their numbers of samples'}",
            "sum": "the sum over the ranks",
            "max": "the maximum over the ranks",
            "min": "the minimum over the ranks",
            "mixed": "nothing that follows from the values of the ranks"
            + (f": {self.mixes} mixes their samples" if self.mixes else ""),
        }
        return texts[self.lies]

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others."""
        return self.file, self.digest, self.place, self.expression, self.line

    @property
    def site(self) -> str:
        """Where a person finds it."""
        return f"{self.file}:{self.line}"


def read(path: Path) -> tuple[Measured, ...]:
    """What a file keeps. Raises AutodistError where it is none that `convert --observe` has written."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise AutodistError(f"has version {content['version']}, not {VERSION}: measure again with --observe", path)
        return tuple(_measured(each) for each in content["observations"])
    except OSError as error:
        raise AutodistError(f"cannot be read: {error.strerror}; --observe writes it", path) from None
    except (ValueError, KeyError, TypeError):
        raise AutodistError("holds no observations: --observe writes such a file", path) from None


def write(path: Path, measured: Iterable[Measured]) -> None:
    """Keep what was measured, in the order of files and lines: equal measurements give equal files."""
    ordered = sorted(measured, key=lambda each: (each.file, each.line, each.place, each.expression))
    lines = ",\n".join(json.dumps(asdict(each)) for each in ordered)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"version": {VERSION}, "observations": [\n{lines}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise AutodistError(f"cannot be written: {error.strerror}", path) from None


def _measured(each: dict[str, Any]) -> Measured:
    known = {field.name for field in fields(Measured)}
    if each["lies"] not in WAYS or not each.keys() <= known or each["lies"] == "rows" and type(each["axis"]) is not int:
        raise ValueError(each)
    return Measured(**{**each, "place": (*map(int, each["place"]),), "given": tuple(each["given"])})
