"""Which lines of which files a conversion has changed: what its runs have to go through."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autodist.errors import AutodistError
from autodist.project import Project
from autodist.source import Source
from autodist.verify.marks import Site, lines_of, marked


@dataclass(frozen=True)
class Changed:
    """One file of the conversion."""

    path: Path
    text: str
    lines: tuple[int, ...]
    """Numbers of the lines that the original does not have, from 1."""
    sites: tuple[Site, ...]
    first: int
    """The number of its first mark among those of all files."""


def changed_files(
    before: Path, after: Path, base: Path, workdir: Path, modules: Mapping[Path, str]
) -> tuple[Changed, ...]:
    """The files of a conversion that have changed lines, the script first.

    ``base`` is the folder of the conversion's files, ``workdir`` the one that is copied; ``modules`` are the names by
    which `python -m` starts scripts.
    """
    found: list[Changed] = []
    first = 0
    for path, text, original in _pairs(before, after, base, workdir, modules):
        lines = changed_lines(original, text)
        try:
            sites = marked(text, lines, first)[1] if lines else []
        except (SyntaxError, ValueError, RecursionError):  # it fails when it runs, or is too deep to be looked into
            continue
        if sites:
            found.append(Changed(path, text, lines, tuple(sites), first))
            first += len(sites)
    return tuple(found)


def _pairs(
    before: Path, after: Path, base: Path, workdir: Path, modules: Mapping[Path, str]
) -> Iterator[tuple[Path, str, str]]:
    """The path and text of each file of the conversion, and the text of what it was made of: empty for a new one."""
    yield after, Source.read(after).text, Source.read(before).text
    try:
        known = {source.path.resolve() for source in Project.load(before, module=modules.get(before)).sources}
        reached = Project.load(after, module=modules.get(after)).modules.values()
    except AutodistError:  # the runs will show what is missing
        return
    home = before.parents[len(after.parent.relative_to(base).parts)]
    for source in reached:
        path = source.path.resolve()
        if path in known or path == before:
            continue
        if path.is_relative_to(base):
            twin = home / path.relative_to(base)
            yield path, source.text, Source.read(twin).text if twin.is_file() and twin != path else ""
        elif path.is_relative_to(workdir):
            yield path, source.text, ""


def changed_lines(original: str, text: str) -> tuple[int, ...]:
    """Numbers of the lines of ``text`` that ``original`` does not have; where they are indented does not matter."""
    old = [line.strip() for line in lines_of(original) if line.strip()]
    numbered = [(number, line.strip()) for number, line in enumerate(lines_of(text), 1) if line.strip()]
    new = [line for _, line in numbered]
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    matcher = difflib.SequenceMatcher(None, old[same:], new[same:], autojunk=False)
    kept = {same + block.b + at for block in matcher.get_matching_blocks() for at in range(block.size)}
    return tuple(number for at, (number, _) in enumerate(numbered) if at >= same and at not in kept)
