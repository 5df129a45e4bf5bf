"""From a unified diff to the suggestions of a review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Suggestion:
    """Lines ``first`` to ``last`` of a file, and the lines to put in their place."""

    path: str
    first: int
    last: int
    lines: tuple[str, ...]

    def fits(self, shown: Mapping[str, Sequence[range]]) -> bool:
        """Whether all its lines stand in one hunk of the pull request: a review can comment on no others."""
        return any(self.first in each and self.last in each for each in shown.get(self.path, ()))

    @property
    def block(self) -> str:
        """What GitHub offers to commit, in a fence that no line of it ends."""
        fence = "`" * (1 + max([2, *(len(run) for line in self.lines for run in re.findall("`+", line))]))
        return "\n".join([f"{fence}suggestion", *self.lines, fence])


def suggestions(diff: str) -> Iterator[Suggestion]:
    """Each run of changed lines. Lines that are only added come with a line beside them, which stays as it is."""
    for path, start, lines in _hunks(diff):
        number, beside, at = start, "", 0
        while at < len(lines):
            if lines[at].startswith(" "):
                beside, number, at = lines[at], number + 1, at + 1
                continue
            end = next((i for i in range(at, len(lines)) if lines[i].startswith(" ")), len(lines))
            removed = sum(line.startswith("-") for line in lines[at:end])
            added = tuple(line[1:] for line in lines[at:end] if line.startswith("+"))
            if not removed and not beside and end < len(lines):  # above the first line: with that one
                lines[end : end + 1] = [f"-{lines[end][1:]}", f"+{lines[end][1:]}"]
                continue
            if removed:
                yield Suggestion(path, number, number + removed - 1, added)
            elif beside:
                yield Suggestion(path, number - 1, number - 1, (beside[1:], *added))
            number, at = number + removed, end


def ranges(patch: str) -> list[range]:
    """The lines of the new file that a patch shows, hunk by hunk."""
    found = [(int(hunk[3]), int(hunk[4] or 1)) for hunk in HUNK.finditer(patch) if _begins_line(patch, hunk.start())]
    return [range(start, start + count) for start, count in found]


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _hunks(diff: str) -> Iterator[tuple[str, int, list[str]]]:
    """Path, first line of the old file, and the lines of each hunk, told by its counts from the headers."""
    path = ""
    lines = iter(diff.split("\n"))
    for line in lines:
        if line.startswith("+++ "):
            path = line[4:].partition("\t")[0].removeprefix("b/")
        elif hunk := HUNK.match(line):
            old, new = int(hunk[2] or 1), int(hunk[4] or 1)
            body: list[str] = []
            while old > 0 or new > 0:
                line = next(lines, " ").removesuffix("\r") or " "
                old -= line[0] in " -"
                new -= line[0] in " +"
                body += [] if line[0] == "\\" else [line]
            yield path, int(hunk[1]), body
