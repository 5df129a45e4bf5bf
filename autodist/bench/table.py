"""The table of a benchmark: medians and spread of several runs of a script and its conversions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

NONE = "-"
HEAD = "version ranks samples/s step data compute communication evaluation speed-up efficiency memory".split()


@dataclass(frozen=True)
class Measured:
    """One run, of all its ranks together: seconds of a step, its data and its collectives, and of an evaluation."""

    samples: float
    """In a second."""
    seconds: float
    data: float
    communication: float | None
    evaluation: float | None
    memory: float
    """Bytes of the rank that takes the most."""

    @property
    def compute(self) -> float:
        """The rest of a step; collectives may run beside it."""
        return self.seconds - self.data


@dataclass
class Row:
    """A version of the script at a number of ranks: its runs, or why there are none."""

    name: str
    ranks: int
    runs: list[Measured] = field(default_factory=list)
    problem: str = ""

    def median(self, what: str) -> float | None:
        """The median over runs."""
        values = self._values(what)
        return statistics.median(values) if values else None

    def spread(self, what: str) -> tuple[float, float] | None:
        """The smallest and the largest of the runs."""
        values = self._values(what)
        return (min(values), max(values)) if values else None

    def _values(self, what: str) -> list[float]:
        return [value for each in self.runs if (value := getattr(each, what)) is not None]


@dataclass
class Outcome:
    """All rows, the first of which is the script as it is, and what they were measured on."""

    script: str
    device: str
    torch: str
    rows: list[Row]
    notes: list[str]
    steps: int
    warmup: int
    repeats: int

    def speedup(self, row: Row) -> float | None:
        """How many times as many samples a second it takes as the script as it is."""
        one, own = self.rows[0].median("samples"), row.median("samples")
        return own / one if one and own else None


def measured(ranks: Sequence[dict[str, Any]]) -> Measured | None:
    """One run from the records of its ranks: its steps take as long as on the slowest rank."""
    if not ranks or not all(each["steps"] for each in ranks):
        return None
    count = min(len(each["steps"]) for each in ranks)
    steps = [[each["steps"][at] for each in ranks] for at in range(count)]
    seconds = statistics.median(max(each["seconds"] for each in step) for step in steps)
    rows = statistics.fmean(sum(each["rows"] for each in step) for step in steps)
    data = statistics.median(max(each["data"] for each in step) for step in steps)
    talks = [each["communication"] for each in ranks if each["communication"] is not None]
    passes = [statistics.median(each["evaluations"]) for each in ranks if each["evaluations"]]
    communication = max(talks) if talks and len(ranks) > 1 else None
    memory = max(each["memory"] for each in ranks)
    return Measured(rows / seconds, seconds, data, communication, max(passes, default=None), memory)


def cells(outcome: Outcome) -> Iterator[list[str]]:
    """The table as text, a list for each row."""
    yield HEAD
    for row in outcome.rows:
        if not row.runs:
            yield [row.name, str(row.ranks), row.problem, *[""] * (len(HEAD) - 3)]
            continue
        speedup = outcome.speedup(row)
        yield [
            row.name,
            str(row.ranks),
            _spread(row, "samples", lambda value: f"{value:,.0f}"),
            _spread(row, "seconds", lambda value: f"{value * 1e3:.1f} ms"),
            *(_one(row, what, lambda value: f"{value * 1e3:.1f} ms") for what in ("data", "compute", "communication")),
            _one(row, "evaluation", lambda value: f"{value:.2f} s"),
            f"{speedup:.2f}" if speedup else NONE,
            f"{speedup / row.ranks:.0%}" if speedup else NONE,
            _one(row, "memory", lambda value: f"{value / 2**30:.2f} GiB"),
        ]


def _one(row: Row, what: str, show: Callable[[float], str]) -> str:
    value = row.median(what)
    return show(value) if value is not None else NONE


def _spread(row: Row, what: str, show: Callable[[float], str]) -> str:
    spread = row.spread(what)
    around = f" ({show(spread[0])} to {show(spread[1])})" if spread and len(row.runs) > 1 else ""
    return f"{_one(row, what, show)}{around}"


def headline(outcome: Outcome) -> str:
    """What was measured, and how."""
    return (
        f"{outcome.script} on {outcome.device}, torch {outcome.torch}: medians of {outcome.repeats} runs of "
        f"{outcome.steps} steps after {outcome.warmup}; in brackets the smallest and the largest run"
    )


def as_text(outcome: Outcome) -> str:
    """For a terminal."""
    rows = [*cells(outcome)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([headline(outcome), "", *lines, "", *outcome.notes]) + "\n"


def as_markdown(outcome: Outcome) -> str:
    """For a README."""
    head, *rows = cells(outcome)
    lines = [head, ["---", *["---:"] * (len(HEAD) - 1)], *rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in lines)
    notes = "".join(f"\n- {each}" for each in outcome.notes)
    return f"{headline(outcome)}\n\n{table}\n{notes}\n"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """For programs: every run, in seconds and bytes."""
    return {
        "schema": 1,
        "script": outcome.script,
        "device": outcome.device,
        "torch": outcome.torch,
        "steps": outcome.steps,
        "warmup": outcome.warmup,
        "notes": outcome.notes,
        "rows": [
            {
                "version": row.name,
                "ranks": row.ranks,
                "problem": row.problem or None,
                "speedup": outcome.speedup(row),
                "runs": [{**vars(each), "compute": each.compute} for each in row.runs],
            }
            for row in outcome.rows
        ],
    }
