"""What of a conversion's changes its runs went through, and what therefore is not proven."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from autodist.verify.changes import Changed
from autodist.verify.marks import DEVICE, LAUNCH, Site, lines_of

MOST_PLACES = 12
"""Places that a line of text names; the report marks all of them."""
UNTRIED = {DEVICE: "for another device", LAUNCH: "for plain python, srun, mpirun or several nodes"}
OTHERWISE = {"true": "never true", "false": "never false", "entered": "never entered", "ended": "never came to its end"}


@dataclass(frozen=True)
class Line:
    """One changed line with code."""

    file: str
    number: int
    text: str
    ran: bool
    settled: str = ""
    """By what it was settled before the runs began that it would not: the way of starting, or the device."""

    @property
    def missing(self) -> bool:
        """It could have run, and did not."""
        return not self.ran and not self.settled


@dataclass(frozen=True)
class OneWay:
    """A changed decision that went one way only."""

    file: str
    number: int
    test: str
    never: str
    """The way that it never went, in words."""
    settled: str = ""


@dataclass(frozen=True)
class Coverage:
    """The marks that some rank of some run came to, in all changed files of a conversion."""

    files: tuple[tuple[str, Changed], ...]
    """Each with its name to a person: its path in the working folder."""
    ran: bytes = field(repr=False)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """All changed lines with code. A line ran if everything that begins on it did."""
        found: list[Line] = []
        for name, file in self.files:
            texts = lines_of(file.text)
            reached: dict[int, list[tuple[bool, str]]] = {}
            for site, ran in self._sites(file):
                if not site.way:
                    for number in site.lines:
                        reached.setdefault(number, []).append((ran, "" if ran else self._settled(site, file)))
            for number, states in sorted(reached.items()):
                ran = all(each for each, _ in states)
                reasons = {reason for each, reason in states if not each}
                settled = reasons.pop() if len(reasons) == 1 else ""
                found.append(Line(name, number, texts[number - 1], ran, settled))
        return tuple(found)

    @cached_property
    def decisions(self) -> tuple[int, tuple[OneWay, ...]]:
        """How many decisions have changed, and those of them that went one way only."""
        count, found = 0, list[OneWay]()
        for name, file in self.files:
            both: dict[tuple[tuple[int, ...], str], list[tuple[Site, bool]]] = {}
            for site, ran in self._sites(file):
                if site.way:
                    both.setdefault((site.lines, site.test), []).append((site, ran))
            for (lines, test), ways in both.items():
                if not any(ran for _, ran in ways):  # it was never asked: its line has not run
                    continue
                site = ways[0][0]
                settled = self._settled(site, file) or site.settled
                never = [each.way for each, ran in ways if each.counts and not ran]
                found += [OneWay(name, lines[0], test, OTHERWISE[way], settled) for way in never]
                count += any(each.counts for each, _ in ways) and not (never and settled)
        return count, tuple(found)

    def _sites(self, file: Changed) -> Iterable[tuple[Site, bool]]:
        return zip(file.sites, map(bool, self.ran[file.first :]), strict=False)

    def _settled(self, site: Site, file: Changed) -> str:
        """By which decision around a place it was settled that no run would come there."""
        while site.inside >= 0:
            around = file.sites[site.inside - file.first]
            if not self.ran[site.inside]:
                return around.settled
            site = around
        return ""

    @property
    def missing(self) -> tuple[Line, ...]:
        """Changed lines that could have run, and never did."""
        return tuple(line for line in self.lines if line.missing)

    @property
    def one_way(self) -> tuple[OneWay, ...]:
        """Changed decisions that could have gone the other way, and never did."""
        return tuple(each for each in self.decisions[1] if not each.settled)

    @property
    def complete(self) -> bool:
        """Nothing is missing but what another device or another way of starting would run."""
        return not self.missing and not self.one_way

    def sentences(self) -> list[str]:
        """In words: what never ran, and what these runs could not try."""
        total, asked = sum(line.ran or line.missing for line in self.lines), self.decisions[0]
        if not self.lines:
            return []
        told = []
        if self.missing:
            where = places((line.file, line.number) for line in self.missing)
            told.append(f"{len(self.missing)} of {_counted(total, 'changed line')} never ran: {where}")
        if self.one_way:
            where = ", ".join(f"{each.file}:{each.number} ({each.never})" for each in self.one_way[:MOST_PLACES])
            more = f" and {len(self.one_way) - MOST_PLACES} more" if len(self.one_way) > MOST_PLACES else ""
            told.append(
                f"{len(self.one_way)} of {_counted(asked, 'changed decision')} went one way only: {where}{more}"
            )
        if told:
            said = ["not proven: " + "; ".join(told)]
        else:
            both = f", and {_counted(asked, 'changed decision')} went both ways" if asked else ""
            said = [f"covered: {_counted(total, 'changed line')} ran{both}"]
        return said + self._untried()

    def _untried(self) -> list[str]:
        """What is for another device, or for another way of starting: once, and without reproach."""
        told = []
        for kind, name in UNTRIED.items():
            found = {(line.file, line.number) for line in self.lines if not line.ran and line.settled == kind}
            found |= {(each.file, each.number) for each in self.decisions[1] if each.settled == kind}
            if found:
                told.append(f"{places(sorted(found))} ({name})")
        return ["not tried here: " + "; ".join(told)] if told else []

    def as_json(self) -> dict[str, Any]:
        """For programs: places as ``file:line``."""
        return {
            "complete": self.complete,
            "changed_lines": len(self.lines),
            "never_ran": [f"{line.file}:{line.number}" for line in self.missing],
            "changed_decisions": self.decisions[0],
            "one_way": [
                {"site": f"{each.file}:{each.number}", "test": each.test, "way": each.never} for each in self.one_way
            ],
            "not_tried": {
                kind: [f"{line.file}:{line.number}" for line in self.lines if not line.ran and line.settled == kind]
                for kind in (DEVICE, LAUNCH)
            },
        }


def joined(*runs: Coverage | None) -> Coverage | None:
    """What some of several runs of the same files came to; None where none of them was looked at."""
    known = [run for run in runs if run is not None]
    return replace(known[0], ran=bytes(map(max, zip(*(run.ran for run in known), strict=True)))) if known else None


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' if number != 1 else ''}"


def places(found: Iterable[tuple[str, int]]) -> str:
    """Lines in order, as ``train.py:88, 92-95, model.py:7``."""
    runs: list[list[Any]] = []
    for file, number in found:
        if runs and runs[-1][0] == file and runs[-1][2] == number - 1:
            runs[-1][2] = number
        elif not runs or (file, number) != (runs[-1][0], runs[-1][2]):
            runs.append([file, number, number])
    return _named(runs[:MOST_PLACES]) + (f" and {len(runs) - MOST_PLACES} more" if len(runs) > MOST_PLACES else "")


def _named(runs: Sequence[Sequence[Any]]) -> str:
    told, last = [], None
    for file, first, end in runs:
        lines = str(first) if first == end else f"{first}-{end}"
        told.append(lines if file == last else f"{file}:{lines}")
        last = file
    return ", ".join(told)
