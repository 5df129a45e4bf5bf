"""``autodist evaluate``: the command line around ``evaluate``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from autodist.errors import AutodistError
from autodist.evaluate import page
from autodist.evaluate.attempt import Setting
from autodist.evaluate.entries import Entry, load
from autodist.evaluate.progress import progress
from autodist.evaluate.record import Record, Status
from autodist.evaluate.sequence import Results, evaluate
from autodist.evaluate.tables import diff_sizes, score, share_equal

INTERRUPTED = 130


def evaluate_command(
    path: Path,
    *,
    root: Path | None,
    data: Path | None,
    strategy: str,
    nproc: Sequence[int],
    python: Path | None,
    results: Path,
    report: Path | None,
    tag: Sequence[str],
    only: Sequence[str],
    fresh: bool,
    run: bool,
    jobs: int,
) -> int:
    """Evaluate, say what came out, and return the exit code: 0 none wrong, 1 some, 2 bad usage."""
    try:
        entries = load(path, root, tag)
        chosen = [entry for entry in entries.scripts if not only or any(part in entry.name for part in only)]
        if not chosen:
            raise AutodistError("no training script is there" + (" of that name" if only else ""), path)
        chosen = _those_there(chosen, entries.root)
        if run and python is None and find_spec("torch") is None:
            raise AutodistError("running the scripts needs torch: pip install 'torch-autodist[verify]', or --no-run")
        if python is not None and not python.is_file():
            raise AutodistError("no such Python", python)
        setting = Setting(
            str(entries.root),
            strategy,
            tuple(nproc),
            sys.executable if python is None else str(python.absolute()),
            None if data is None else str(data.resolve()),
            run,
        )
        records = _evaluated(chosen, setting, Results(results), fresh, jobs)
    except AutodistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted: the same command goes on, {results} keeps what is done", file=sys.stderr)
        return INTERRUPTED
    if report is not None:
        page.write(records, strategy, report)
    print(summary(records))
    return 1 if any(record.status is Status.WRONG for record in records) else 0


def _those_there(chosen: Sequence[Entry], root: Path) -> list[Entry]:
    """The scripts whose repositories are at hand; says which are not. Raises AutodistError if none is."""
    there = [entry for entry in chosen if entry.folder(root).is_dir()]
    absent = sorted({entry.repository for entry in chosen if entry not in there})
    if not there:
        raise AutodistError(f"none of the repositories is there, such as {absent[0]}: fetch them first", root)
    if absent:
        count = len(chosen) - len(there)
        print(f"left out: {count} scripts of repositories that are not in {root}: {', '.join(absent)}", file=sys.stderr)
    return there


def _evaluated(entries: Sequence[Entry], setting: Setting, results: Results, fresh: bool, jobs: int) -> list[Record]:
    records = []
    with progress(len(entries)) as show:
        for record in evaluate(entries, setting, results, fresh, jobs):
            records.append(record)
            show(line(record), records)
    return records


def line(record: Record) -> str:
    """One script in one line."""
    return f"{record.status.value}: {record.name}" + (f": {record.reason}" if record.reason else "")


def summary(records: Sequence[Record]) -> str:
    """The score."""
    lines = [f"{count:5} {name}" for name, count in score(records)]
    sizes = diff_sizes(records)
    if sizes is not None:
        lines.append(f"a conversion adds {sizes[0]:g} lines and removes {sizes[1]:g} (medians)")
    return "\n".join([*lines, share_equal(records)])
