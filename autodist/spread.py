"""How a value relates over the ranks, and what arithmetic makes of it.

The ranks read different samples, so what they compute from them differs; how it differs decides what a printed or
compared number must become. As in physics, quantities are intensive (a mean) or extensive (a sum): the global
value of the first is the mean over ranks, that of the second the sum.
"""

from __future__ import annotations

from enum import Enum

from autodist.observations import Measured
from autodist.placement import Partial, Placement, Replicate, Shard
from autodist.solve.facts import is_number_of_samples, is_sum, is_weighted


class Spread(Enum):
    """What the ranks' values have to do with the global one."""

    SAME = "equal on all ranks"
    WORLD = "the number of ranks"
    RANK = "meant to differ by rank"
    ROWS = "this rank's samples, along the first axis"
    COLUMNS = "this rank's samples, along a later axis"
    MEAN = "a mean over this rank's samples"
    SUM = "a sum over this rank's samples"
    FEWER = "a mean over some of this rank's samples, of which ranks have different numbers"
    MOST = "the largest number in this rank's samples"
    LEAST = "the smallest number in this rank's samples"
    COUNT = "the number of this rank's samples, equal on all ranks"
    RATE = "divided by the number of this rank's samples"
    CROSS = "pairs every sample of this rank with every other one"
    LOCAL = "computed from this rank's samples in no simple way"

    def __init__(self, meaning: str) -> None:
        self.is_local = self._name_ not in ("SAME", "WORLD", "RANK")
        """Whether it was computed from this rank's samples."""

    __hash__ = object.__hash__  # the members are the only ones of their kind: by name, it takes ten times as long

    @property
    def is_reducible(self) -> bool:
        """Whether the global value follows from the ranks' values, as a number does."""
        return self in (Spread.MEAN, Spread.SUM, Spread.COUNT, Spread.FEWER, Spread.MOST, Spread.LEAST)


SAME, WORLD, RANK = Spread.SAME, Spread.WORLD, Spread.RANK
ROWS, COLUMNS, CROSS, LOCAL = Spread.ROWS, Spread.COLUMNS, Spread.CROSS, Spread.LOCAL
MEAN, SUM, COUNT, RATE = Spread.MEAN, Spread.SUM, Spread.COUNT, Spread.RATE


def join(a: Spread, b: Spread) -> Spread:
    """The spread of a variable that has one or the other; SAME is the start of an accumulator."""
    if a is b or b is SAME or b is WORLD:
        return a
    if a is SAME or a is WORLD:
        return b
    for strong in (RANK, CROSS, ROWS, COLUMNS):
        if strong in (a, b):
            return strong
    return SUM if {a, b} == {SUM, COUNT} else LOCAL


def combine(spreads: list[Spread]) -> Spread:
    """The spread of what an unknown function makes of its arguments."""
    local = [s for s in spreads if s not in (SAME, WORLD)]
    if not local:
        return SAME
    for strong in (RANK, CROSS, ROWS, COLUMNS):
        if strong in local:
            return strong
    return LOCAL


def add(a: Spread, b: Spread, a_is_zero: bool = False, b_is_zero: bool = False) -> Spread:
    """The spread of ``x + y`` and ``x - y``."""
    a, b = (SAME if s is WORLD else s for s in (a, b))
    if b_is_zero:
        return a
    if a_is_zero:
        return b
    if a is b:
        return LOCAL if a in (Spread.MOST, Spread.LEAST) else a  # the ranks' largest are not of one rank
    if {a, b} == {SUM, COUNT}:
        return SUM
    if {a, b} == {SAME, MEAN}:
        return MEAN
    return combine([a, b])


def multiply(a: Spread, b: Spread) -> Spread:
    """The spread of ``x * y``."""
    pair = {a, b}
    if pair == {COUNT, WORLD}:
        return SAME
    if pair == {SUM, WORLD}:
        return MEAN
    if pair == {MEAN, COUNT}:
        return SUM
    if pair == {SUM, RATE}:
        return MEAN
    if pair == {COUNT, RATE}:
        return SAME
    a, b = (SAME if s is WORLD else s for s in (a, b))
    if SAME in (a, b):
        return b if a is SAME else a
    return combine([a, b])


def divide(a: Spread, b: Spread) -> Spread:
    """The spread of ``x / y`` and ``x // y``."""
    if b is WORLD:
        return {SAME: COUNT, SUM: MEAN}.get(a, a)
    if a is WORLD:
        a = SAME
    if b is SAME:
        return a
    if (a, b) == (SAME, COUNT):
        return RATE
    if (a, b) == (SUM, COUNT):
        return MEAN
    if (a, b) == (COUNT, COUNT):
        return SAME
    return combine([a, b]) if a is not SAME or b not in (COUNT, MEAN, SUM) else LOCAL


def spread_of(placement: Placement) -> Spread:
    """What ranks' values have to do with the global one, in the words of the rules."""
    match placement:
        case Shard():
            return Spread.ROWS
        case Partial(reduce="mean"):
            return Spread.FEWER if is_weighted(placement) else Spread.MEAN
        case Partial(reduce="max"):
            return Spread.MOST
        case Partial(reduce="min"):
            return Spread.LEAST
        case Replicate():
            return Spread.COUNT
    if is_sum(placement):
        return Spread.COUNT if is_number_of_samples(placement) else Spread.SUM
    return Spread.LOCAL


def measured(told: Measured) -> Spread:
    """The same of what was measured."""
    if told.lies == "rows":
        return Spread.COLUMNS if told.axis else Spread.ROWS
    if told.lies == "mean":
        return Spread.FEWER if told.weight else Spread.MEAN
    return {"sum": Spread.SUM, "max": Spread.MOST, "min": Spread.LEAST}.get(told.lies, Spread.LOCAL)
