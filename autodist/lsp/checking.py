"""The process that checks scripts for the server: each line of standard input is a request, each answer a line, both in
JSON. An analysis here keeps no editor waiting, and one that takes too long can be ended."""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from autodist import registry
from autodist.choice import choose
from autodist.config import Config, load
from autodist.convert import InternalError, convert, faults, fixed, unchanged
from autodist.errors import AutodistError
from autodist.project import Project
from autodist.report import Run
from autodist.result import Result
from autodist.rule import Applicability, Diagnostic
from autodist.sniff import may_train
from autodist.source import Source

UNITS = {"utf-8": lambda text: len(text.encode()), "utf-32": len}
"""How many places of a line a text takes, in the encodings that a client may want; UTF-16 is that of all."""


@dataclass(frozen=True)
class Checked:
    """A script as the editor has it, and what is found."""

    project: Project
    config: Config
    findings: tuple[Diagnostic, ...]

    @property
    def joins_ranks(self) -> bool:
        """Whether it distributes itself. Fixes of another script need each other."""
        return any("init_process_group" in source.text for source in self.project.sources)


class Checker:
    """Answers requests, and keeps the last script that it was asked for: its fixes are mostly asked for next."""

    def __init__(self) -> None:
        self._last: tuple[Any, Checked | None] = None, None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """``entry`` is the path of a script and ``texts`` what the editor holds, by path. Without ``fix``, what is
        found in it; with it, the edits of the findings of these numbers, of all that is safe, or of a conversion."""
        entry, texts = Path(request["entry"]), dict(request["texts"])
        try:
            os.chdir(request["folder"])
            checked = self._checked(entry, texts)
            wanted = request.get("fix")
            if wanted is None:
                return _told(checked, request["encoding"]) if checked is not None else {"files": [], "findings": []}
            return {"edits": _edits(_result(checked, wanted))} if checked is not None else {"edits": {}}
        except (AutodistError, OSError, ValueError, RecursionError) as error:
            # a text that is just being written does not parse, or imports what is not there yet
            path = str(error.path.resolve()) if isinstance(error, AutodistError) and error.path else None
            unfinished = path in texts and not isinstance(error, InternalError) and request.get("fix") is None
            return {"error": str(error), "unfinished": unfinished}

    def _checked(self, entry: Path, texts: Mapping[str, str]) -> Checked | None:
        key = entry, Path.cwd(), tuple(sorted(texts.items()))
        known, checked = self._last
        if known == key and checked is not None and not _is_outdated(checked, texts):
            return checked
        text = texts.get(str(entry.resolve()))
        if not may_train(text.encode(errors="replace") if text is not None else entry.read_bytes()):
            return None
        unsaved = {Path(path): text for path, text in texts.items()}
        project = Project.load(entry, unsaved=unsaved)
        config, _ = choose(project, load(entry.parent, {}))
        result = unchanged(project, faults(project, config))
        if result.trains_nothing:
            return None
        checked = Checked(project, config, Run(config.strategy, result).findings)
        self._last = key, checked
        return checked


def _is_outdated(checked: Checked, texts: Mapping[str, str]) -> bool:
    """Whether a file that no editor holds has changed on disk, or the options may have."""
    on_disk = [each for each in checked.project.sources if str(each.path.resolve()) not in texts]
    return any(not each.path.exists() or each.path.read_bytes() != each.encode(each.text) for each in on_disk) or (
        load(checked.project.entry.path.parent, {}) != checked.config
    )


def _told(checked: Checked, encoding: str) -> dict[str, Any]:
    project = checked.project
    return {
        "files": [str(source.path.resolve()) for source in project.sources],
        "starts": [str(source.path.resolve()) for source in project.sources if "__main__" in source.text],
        "joins_ranks": checked.joins_ranks,
        "strategy": checked.config.strategy.value,
        "findings": [_finding(each, encoding) for each in checked.findings],
    }


def _finding(found: Diagnostic, encoding: str) -> dict[str, Any]:
    fix = found.fix
    return {
        "path": str(found.source.path.resolve()),
        "code": found.code,
        "rule": found.rule,
        "message": found.message,
        "severity": found.severity.value,
        "start": _place(found.source, found.line, found.column, encoding),
        "end": _place(found.source, found.end_line, found.end_column, encoding),
        "safe": fix is not None and bool(fix.edits) and fix.applicability is Applicability.SAFE,
    }


def _place(source: Source, line: int, column: int, encoding: str) -> tuple[int, int]:
    """A place as the protocol counts it, from 0."""
    before = source.line(line).encode()[: column - 1].decode(errors="ignore")
    units = UNITS.get(encoding, lambda text: len(text.encode("utf-16-le")) // 2)
    return line - 1, units(before)


def _result(checked: Checked, wanted: str | list[int]) -> Result:
    if wanted == "convert":
        return convert(checked.project, checked.config)
    numbers = range(len(checked.findings)) if wanted == "safe" else wanted
    chosen = (checked.findings[each] for each in numbers if isinstance(each, int))
    safe = (each for each in chosen if each.fix is not None and each.fix.applicability is Applicability.SAFE)
    return fixed(checked.project, tuple(safe))


def _edits(result: Result) -> dict[str, list[tuple[int, int, str]]]:
    """For each file that changes: from which line to which, counted from 0, is replaced by what."""
    return {str(file.source.path.resolve()): [*_changes(file.before, file.after)] for file in result.changed}


def _changes(before: str, after: str) -> Iterator[tuple[int, int, str]]:
    old, new = (io.StringIO(text, newline="").readlines() for text in (before, after))
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield start, end, "".join(new[first:last])


def main() -> None:
    """Answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    checker = Checker()
    registry.load()
    gc.disable()  # syntax trees live as long as a run does
    for line in sys.stdin:
        try:
            answer = checker.answer(json.loads(line))
        except Exception as error:  # a defect: the editor goes on
            answer = {"error": f"internal error: {type(error).__name__}: {error}", "unfinished": False}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    main()
