"""From recorded values to how each of them lies over the ranks, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from autodist.observe.joins import Join, Values, joins, settled
from autodist.observe.measured import Measured, Round
from autodist.verify.probes.observing import Seen

ROWS, PASSED = "its number of samples", "its number of samples so far"
VIEWS = frozenset("detach alias t view transpose permute unbind split select slice expand squeeze unsqueeze".split())
"""Give what they are given, in parts or in another order of axes."""
MOST_COUNTS = 500
KINDS = ("differentiated", "gradient", "shown", "compared", "saved")
GRADIENT = re.compile(r"^gradient of parameter (\d+)$")


@dataclass(frozen=True)
class Mixing:
    """The first operation on the way to a value whose results cannot be joined."""

    operation: str
    site: str


@dataclass(frozen=True)
class Observation:
    """One value at one place."""

    kind: str
    site: str
    text: str
    state: str
    """known, mixed or undecided."""
    join: Join | None
    times: int
    """How often it occurred in all runs on whole batches."""
    mixing: Mixing | None = None
    why: str = ""
    read: str = ""
    """What reading takes it for, where that is another one: a fault of autodist."""

    def __str__(self) -> str:
        if self.join is not None:
            return str(self.join)
        if self.state == "undecided":
            return f"undecided: {self.why}"
        by = f": {self.mixing.operation} mixes the samples of the batch ({self.mixing.site})" if self.mixing else ""
        return f"nothing joins what the ranks have{by}"


def observations(measured: Measured) -> list[Observation]:
    """How each recorded value lies over the ranks, in the order of their places."""
    steps = [Steps(each) for each in measured.rounds]
    runs = (run for each in measured.rounds for run in (each.whole, *each.shares))
    seen = (each for run in runs for each in run if each.kind in KINDS)
    found = [_observed(place, measured.rounds, steps) for place in dict.fromkeys(map(place_of_seen, seen))]
    return sorted(_gathered(found), key=lambda each: (_order(each.site), KINDS.index(each.kind)))


def place_of_seen(seen: Seen) -> tuple[str, str, str]:
    return seen.kind, seen.site, seen.text


def _order(site: str) -> tuple[str, int]:
    name, _, line = site.rpartition(":")
    return name, int(line) if line.isdecimal() else 0


@dataclass
class Occurrences:
    """What a place was on the whole batch and on the shares, each time that a run came to it."""

    values: list[Values] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    """The samples of the batches at hand."""
    rounds: list[int] = field(default_factory=list)
    mixing: Mixing | None = None
    uneven: int | None = None
    """How often it occurred on the whole batch, where a share has come to it more or less often."""


def occurrences(place: tuple[str, str, str], rounds: Sequence[Round], steps: Sequence[Steps]) -> Occurrences:
    """All that was recorded at a place, and the first operation that mixes samples on the way to it."""
    found = Occurrences()
    for number, each in enumerate(rounds):
        whole = [seen for seen in each.whole if place_of_seen(seen) == place]
        shares = [[seen for seen in share if place_of_seen(seen) == place] for share in each.shares]
        if any(len(share) != len(whole) for share in shares):
            found.uneven = len(whole)
            return found
        for one, *others in zip_longest(whole, *shares):
            weights = {
                ROWS: tuple(float(other.rows) for other in others),
                PASSED: tuple(float(other.total) for other in others),
                **steps[number].counts(one.step),
            }
            found.values.append(Values(one.value, tuple(other.value for other in others), weights))
            found.rows.append((one.rows, *(other.rows for other in others)))
            found.rounds.append(number)
            if found.mixing is None and one.operation >= 0 and not joins(found.values[-1]):
                found.mixing = steps[number].mixing(one.step, one.operation)
    return found


def _observed(place: tuple[str, str, str], rounds: Sequence[Round], steps: Sequence[Steps]) -> Observation:
    kind, site, text = place
    found = occurrences(place, rounds, steps)
    if found.uneven is not None:
        why = "it occurs more or less often on a share than on the whole batch"
        return Observation(kind, site, text, "undecided", None, found.uneven, None, why)
    state, join = settled(found.values)
    why = ""
    if state == "undecided":
        known = all(each.known for each in found.values)
        zero = known and all(not torch.as_tensor(each.whole).count_nonzero() for each in found.values)
        why = "it is too large to be kept" if not known else "it is zero every time" if zero else "it fits several ways"
    mixing = found.mixing if state == "mixed" else None
    return Observation(kind, site, text, state, join, len(found.values), mixing, why)


def _gathered(found: Sequence[Observation]) -> Iterator[Observation]:
    """Gradients of one step that lie alike are one observation."""
    groups: dict[tuple[str, str, str], list[Observation]] = {}
    for each in found:
        if each.kind != "gradient":
            yield each
        elif each.why != "it is zero every time":
            groups.setdefault((each.site, each.state, str(each.join)), []).append(each)
    for (site, state, _), several in groups.items():
        text = f"{len(several)} gradient{'s' if len(several) > 1 else ''}"
        yield Observation("gradient", site, text, state, several[0].join, several[0].times, None, several[0].why)


class Steps:
    """The operations of each step of one round, on the whole batch and on the shares."""

    def __init__(self, round_: Round) -> None:
        self._whole = _by_step(round_.whole)
        self._shares = [_by_step(each) for each in round_.shares]
        self._pairs: dict[int, dict[int, tuple[Seen, tuple[Seen, ...]]]] = {}
        self._counts: dict[int, dict[str, tuple[float, ...]]] = {}

    def _aligned(self, step: int) -> dict[int, tuple[Seen, tuple[Seen, ...]]]:
        """The operations by their number, each with what the shares have in its place: the one that is as often made
        before it in the same line. Those of a line that makes more or fewer of them on a share are left out."""
        if step not in self._pairs:
            runs = [_by_line(each.get(step, [])) for each in (self._whole, *self._shares)]
            self._pairs[step] = {
                one.operation: (one, tuple(others))
                for line, several in runs[0].items()
                if all(len(run.get(line, [])) == len(several) for run in runs[1:])
                for one, *others in zip(several, *(run[line] for run in runs[1:]), strict=True)
            }
        return self._pairs[step]

    def counts(self, step: int) -> Mapping[str, tuple[float, ...]]:
        """What shares may be weighted by: numbers that add up to that of the whole batch, and sizes that do."""
        if step not in self._counts:
            found: dict[str, tuple[float, ...]] = {}
            times: dict[str, int] = {}
            for one, others in self._aligned(step).values():
                rows = [float(each.rows) for each in others]
                for name, (total, *parts) in _numbers(one, others):
                    time = times[name] = times.get(name, 0) + 1
                    name = f"{name}, number {time}" if time > 1 else name
                    if total > 0 and min(parts) >= 0 and abs(sum(parts) - total) <= 1e-9 * total:
                        if len(found) < MOST_COUNTS and (time == 1 or parts != rows):
                            found[name] = tuple(parts)
            self._counts[step] = found
        return self._counts[step]

    def mixing(self, step: int, operation: int) -> Mixing | None:
        """Where on the way to ``operation`` samples are mixed: what cannot be joined, though all that it is given can.

        What is folded together with another axis and taken apart again cannot be joined in between, and mixes nothing.
        """
        made, gone = self._made(step), set[int]()
        while operation in made:
            gone.add(operation)
            lost = [each for each in made[operation].inputs if each not in gone and not self._joins(step, each)]
            if not lost:
                return Mixing(made[operation].text.partition(".")[0], made[operation].site)
            operation = lost[0]
        return None

    def _made(self, step: int) -> dict[int, Seen]:
        return {each.operation: each for each in self._whole.get(step, [])}

    def _joins(self, step: int, operation: int) -> bool:
        if operation not in self._aligned(step):
            seen = self._made(step)[operation]
            return seen.text.partition(".")[0] in VIEWS and all(self._joins(step, each) for each in seen.inputs)
        one, others = self._aligned(step)[operation]
        weights = {ROWS: tuple(float(each.rows) for each in others), **self.counts(step)}
        values = Values(one.value, tuple(each.value for each in others), weights)
        return not values.known or bool(joins(values))


def _by_line(seen: Sequence[Seen]) -> dict[tuple[str, str], list[Seen]]:
    found: dict[tuple[str, str], list[Seen]] = {}
    for each in seen:
        found.setdefault((each.lines, each.text), []).append(each)
    return found


def _rows(others: Sequence[Seen]) -> tuple[float, ...]:
    return tuple(float(other.rows) for other in others)


def _by_step(seen: Sequence[Seen]) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = {}
    for each in seen:
        if each.kind == "operation":
            found.setdefault(each.step, []).append(each)
    return found


def _numbers(one: Seen, others: Sequence[Seen]) -> Iterator[tuple[str, list[float]]]:
    """Scalars and sizes of what an operation gives, whole and by share."""
    values: list[Any] = [one.value, *(each.value for each in others)]
    name = f"what {one.text.partition('.')[0]} counts ({one.site})"
    if all(isinstance(each, torch.Tensor) for each in values):
        if all(each.numel() == 1 and not each.is_complex() for each in values):
            yield name, [float(each) for each in values]
        elif all(each.dim() and each.dim() == one.value.dim() for each in values):
            yield name, [float(each.shape[0]) for each in values]
