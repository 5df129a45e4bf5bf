"""Whether all ranks have the same of a value, as far as one run over a script tells: how what they do not have alike
lies over them, the placements on the program graph tell."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Spread(Enum):
    """What the ranks' values have to do with each other."""

    SAME = "equal on all ranks"
    WORLD = "the number of ranks"
    RANK = "meant to differ by rank"
    LOCAL = "computed from this rank's samples"

    def __init__(self, meaning: str) -> None:
        self.is_local = self._name_ == "LOCAL"
        """Whether it was computed from this rank's samples."""

    __hash__ = object.__hash__  # the members are the only ones of their kind: by name, it takes ten times as long


SAME, WORLD, RANK, LOCAL = Spread.SAME, Spread.WORLD, Spread.RANK, Spread.LOCAL


def join(a: Spread, b: Spread) -> Spread:
    """The spread of a variable that has one or the other."""
    if a is b or b is SAME or b is WORLD:
        return a
    if a is SAME or a is WORLD:
        return b
    return RANK


def combine(spreads: Iterable[Spread]) -> Spread:
    """The spread of what is computed of several values."""
    given = {*spreads}
    return RANK if RANK in given else LOCAL if LOCAL in given else SAME
