"""Counts over all records."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autodist.evaluate.record import Record, Status

Key = Callable[[Record], Iterable[str]]


@dataclass(frozen=True)
class Table:
    """Rows of a name and a number for each status."""

    title: str
    rows: tuple[tuple[str, Counter[Status]], ...]


def score(records: Sequence[Record]) -> list[tuple[str, int]]:
    """How many scripts came out how, and how many did not run here."""
    return [(status.value, sum(record.status is status for record in records)) for status in Status]


def share_equal(records: Sequence[Record]) -> str:
    """The headline: verified equal among the scripts that could run here and that are not meant to be refused."""
    run = [record for record in records if record.status not in (Status.STATIC, Status.REFUSED)]
    equal = sum(record.status is Status.EQUAL for record in run)
    return f"{equal} of {len(run)} converted scripts that run here are verified equal" if run else "no script ran here"


def tables(records: Sequence[Record]) -> list[Table]:
    """By rule, by idiom and by reason."""
    return [
        _table("Rules", records, lambda record: {f"{each.code} {each.rule}" for each in record.remarks}),
        _table("Idioms", records, lambda record: record.idioms),
        _table("Reasons", records, lambda record: [general(record.reason)] if record.status in UNEQUAL else []),
    ]


UNEQUAL = (Status.STATIC, Status.WARNED, Status.REFUSED, Status.WRONG)


def general(reason: str) -> str:
    """A reason without what is particular to one script: numbers, names and places."""
    text = re.sub(r"\s*\([^()]*:\d+\)$", "", reason.partition(";")[0])
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "…", text)
    text = re.sub(r"(?<![A-Za-z\d])\d[\d.e+-]*", "#", text)
    return text if len(text) <= 110 else text[:107] + "…"


def _table(title: str, records: Sequence[Record], key: Key) -> Table:
    rows: dict[str, Counter[Status]] = {}
    for record in records:
        for name in key(record):
            rows.setdefault(name, Counter())[record.status] += 1
    ordered = sorted(rows.items(), key=lambda row: (-row[1].total(), row[0]))
    return Table(title, tuple(ordered))


def diff_sizes(records: Sequence[Record]) -> tuple[float, float] | None:
    """The median numbers of lines that a conversion adds and removes."""
    changed = [record for record in records if record.added]
    if not changed:
        return None
    return statistics.median(each.added for each in changed), statistics.median(each.removed for each in changed)
