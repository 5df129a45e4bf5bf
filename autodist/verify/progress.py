"""Shows how far the runs of a verification are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

STEP = b'{"kind": "step"'
REFRESH_SECONDS = 0.25
PAIR = 2


class Progress(Protocol):
    """Told what runs, and again and again how many optimizer steps each process has taken."""

    def begin(self, what: str, names: Sequence[str], goal: int | None) -> None:
        """A run of several processes begins; ``goal`` is the number of steps where it is known."""

    def steps(self, counts: Sequence[int]) -> None:
        """So many optimizer steps each."""

    def end(self) -> None:
        """The run is over."""

    def close(self) -> None:
        """All runs are over."""


class NoProgress:
    """Says nothing."""

    def begin(self, what: str, names: Sequence[str], goal: int | None) -> None:
        """Nothing."""

    def steps(self, counts: Sequence[int]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class LineProgress:
    """One line a run, for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def begin(self, what: str, names: Sequence[str], goal: int | None) -> None:
        """Say what runs."""
        print(what, file=self._stream, flush=True)

    def steps(self, counts: Sequence[int]) -> None:
        """Nothing: a log has no place for it."""

    def end(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class LiveProgress:
    """A bar for each process, by rich: those of the conversion stay beside that of the original."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bars: Any = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._runs: list[list[Any]] = []

    def begin(self, what: str, names: Sequence[str], goal: int | None) -> None:
        """Add a bar for each process; a pair of runs that is shown already makes room."""
        if len(self._runs) >= PAIR:
            for task in (task for run in self._runs for task in run):
                self._bars.remove_task(task)
            self._runs = []
        self._runs.append([self._bars.add_task(f"{what}, {name}", total=goal) for name in names])
        self._bars.start()

    def steps(self, counts: Sequence[int]) -> None:
        """Move the bars."""
        for task, count in zip(self._runs[-1], counts, strict=False):
            self._bars.update(task, completed=count)

    def end(self) -> None:
        """Stop the clocks; the steps that were taken are all there were."""
        for task in self._runs[-1]:
            self._bars.stop_task(task)

    def close(self) -> None:
        """Take the bars away."""
        self._bars.stop()


def progress_for_terminal() -> Progress:
    """Bars on a terminal where rich is installed, lines elsewhere."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        try:
            return LiveProgress()
        except ImportError:
            pass
    return LineProgress()


class StepCounter:
    """Counts steps in traces while they are written."""

    def __init__(self, traces: Sequence[Path]) -> None:
        self._traces = traces
        self._read = [0] * len(traces)
        self._counts = [0] * len(traces)
        self._last = 0.0

    def counts(self) -> list[int] | None:
        """Steps of each process, None when it is too early to look again."""
        now = time.monotonic()
        if now - self._last < REFRESH_SECONDS:
            return None
        self._last = now
        for index, path in enumerate(self._traces):
            if path.exists():
                with open(path, "rb") as file:
                    file.seek(self._read[index])
                    block = file.read()
                whole = block[: block.rfind(b"\n") + 1]
                self._read[index] += len(whole)
                self._counts[index] += whole.count(STEP)
        return list(self._counts)
