"""Shows how far an evaluation is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from autodist.evaluate.record import Record, Status

Show = Callable[[str, Sequence[Record]], None]
"""Told the line of the script that is done, and all records so far."""


@contextmanager
def progress(total: int) -> Iterator[Show]:
    """Show how many of ``total`` scripts are done."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            pass
        else:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
                task = bars.add_task("", total=total)

                def show(text: str, records: Sequence[Record]) -> None:
                    bars.console.print(text, markup=False, highlight=False)
                    bars.update(task, completed=len(records), description=counts(records))

                yield show
            return
    yield lambda text, records: print(f"[{len(records)}/{total}] {text}", file=sys.stderr, flush=True)


def counts(records: Sequence[Record]) -> str:
    """The score in a few words."""
    names = {
        Status.EQUAL: "equal",
        Status.STATIC: "not run",
        Status.WARNED: "warned",
        Status.REFUSED: "refused",
        Status.WRONG: "wrong",
    }
    numbers = {status: sum(record.status is status for record in records) for status in Status}
    return ", ".join(f"{number} {names[status]}" for status, number in numbers.items() if number)
