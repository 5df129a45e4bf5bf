"""The placements: how the global value follows from the values of the ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeGuard

Reduce: TypeAlias = Literal["sum", "mean", "max", "min"]


@dataclass(frozen=True)
class Replicate:
    """The value of any rank. What scales with the number N of ranks is N**exponent times the global value: a batch size
    per rank has exponent -1."""

    exponent: int = 0


@dataclass(frozen=True)
class Shard:
    """The ranks' pieces joined along an axis, times N**-exponent. With an ``order`` of its own the pieces hold the
    samples of several batches: joined, they stand in another order than in one process."""

    axis: int
    exponent: int = 0
    order: str = ""
    rows: str = "rows"
    """What counts the entries along that axis: of a batch, as many on all ranks; else the value that picked them."""
    parts: int = field(default=1, compare=False)
    """How many entries in a row are parts of one sample, `x.flatten()`, or 0 where it is not told. The ranks' samples
    take turns, and not their parts."""

    @property
    def in_parts(self) -> bool:
        """Whether the entries are parts of samples."""
        return self.parts != 1


@dataclass(frozen=True)
class Partial:
    """The reduction of the ranks' values, times N**-exponent. ``weight`` names a value of the graph: by which a mean is
    weighted (how many of what each rank counted), or which number a sum of such numbers is."""

    reduce: Reduce
    weight: str = ""
    exponent: int = 0


@dataclass(frozen=True)
class Each:
    """What a loop over a rank's own samples has come to: one of them, or what is computed of it. The ranks' rounds
    together are those of one process."""

    loop: str = ""
    over: str = ""
    """The number of samples by which it is divided, of which each rank has its own: `loss / len(x)`."""


@dataclass(frozen=True)
class PerRank:
    """Nothing simple: the operation that mixed it, and why."""

    operation: str
    reason: str
    rows: str = ""
    """What counts its entries, where the ranks' numbers of them add up to that of the global value: `x.nonzero()`."""
    over: str = ""
    """The number by which it is divided, alike on all ranks but for that: `100 / len(x)`."""
    blocks: str = ""
    """What is left to be told apart where each of a rank's samples is combined with each other, all in the same way:
    PAIRS, or COLUMNS where a loop has come to those of one sample. `columns[i]` is that sample's alone."""


PAIRS, COLUMNS = "pairs", "columns"

Placement: TypeAlias = Replicate | Shard | Partial | Each | PerRank


PIECES = "pieces"
"""Counts the samples of pieces of which it is told how large they are, `x.split(4)`: all ranks together have as many as
one process, of other samples."""

PARTS = "parts of "
"""Begins what counts the parts of samples that loops come to, of which each sample has its own number: `for box in
boxes` of one."""


def part_of(placement: Each, of: str) -> Each:
    """One of the parts of the sample that a loop has come to."""
    return replace(placement, loop=PARTS + of)


def piecewise(placement: Placement) -> Placement:
    """What is computed of such a piece: a sum or mean over its samples, which loops add up."""
    if not isinstance(placement, Partial):
        return placement
    if placement.exponent or not is_linear(placement):
        return PerRank("split", "the pieces of a rank have other samples than those of one process")
    return Each(PIECES) if placement.reduce == "mean" else Each("rows")


def is_paired(placement: Placement | None) -> bool:
    """Whether each of a rank's samples is combined with each other."""
    return isinstance(placement, PerRank) and placement.blocks == PAIRS


GUESSED = "it is not known"
"""Begins the reasons why a value is taken for one that is different on each rank, for all that is known."""
EITHER = f"{GUESSED} whether it is a sum or a mean: `reduction` may be either"


def is_guessed(placement: Placement | None) -> TypeGuard[PerRank]:
    """Whether it is taken for different on each rank only because it is not known how it lies."""
    return isinstance(placement, PerRank) and placement.reason.startswith(GUESSED)


def is_linear(placement: Placement) -> bool:
    """Whether what is linear in the ranks' values is so in the global value: sums and means over the ranks."""
    return isinstance(placement, Partial) and placement.reduce in ("sum", "mean")


SUMMED = "sum of "
"""Begins the name of what several numbers of samples add up to: those of several batches."""


def counted(placement: Placement | None) -> str:
    """What a number counts of a batch, by the name of its weight: `rows` of `len(x)`; empty if it counts nothing."""
    sums = isinstance(placement, Partial) and placement.reduce == "sum" and not placement.weight.startswith(SUMMED)
    return placement.weight if isinstance(placement, Partial) and sums else ""


def share(weight: str, of: int) -> str:
    """The name of a share of a number of samples, `len(x) // 2`, which ranks have of their own as one process has."""
    return f"{weight} // {of}"


def is_even_number(weight: str) -> bool:
    """Whether ranks have as many each of what a name counts: of samples, their multiples and their shares."""
    return weight.removeprefix(SUMMED).partition(" // ")[0] == "rows"


def is_multiple(placement: Placement | None) -> bool:
    """Whether it is a multiple of how many samples a rank has: `-len(x)`"""
    return isinstance(placement, Partial) and placement.weight.startswith(SUMMED)


def multiple(partial: Partial) -> Partial:
    """A multiple of a sum or mean: of a number of samples, no longer one, but as even over the ranks as that."""
    if partial.reduce == "mean" or not partial.weight or partial.weight.startswith(SUMMED):
        return partial
    return replace(partial, weight=SUMMED + partial.weight)


def times(placement: Placement, exponent: int) -> Placement:
    """A placement whose values are multiplied with N**exponent."""
    return (
        placement
        if isinstance(placement, (PerRank, Each))
        else replace(placement, exponent=placement.exponent + exponent)
    )


def join(one: Placement, other: Placement) -> Placement:
    """The placement of a value that lies one way or the other: at the end of branches, and in a container."""
    if isinstance(one, PerRank) or isinstance(other, PerRank):
        return one if isinstance(one, PerRank) else other
    if one == other:
        return one
    for same, either in ((one, other), (other, one)):
        parts = isinstance(either, Each) and either.loop.startswith(PARTS)
        if isinstance(same, Each) and isinstance(either, Each) and parts:
            continue  # a sample, and what is in it
        if isinstance(same, (Replicate, Each)) and isinstance(either, Each):
            return either
        if isinstance(same, Replicate) and isinstance(either, Partial) and either.reduce != "sum":
            if same.exponent == either.exponent:
                return either  # the mean, the largest and the smallest of equal values are that value
    if isinstance(one, Shard) and isinstance(other, Shard) and replace(one, rows="") == replace(other, rows=""):
        uneven = sorted({each.rows for each in (one, other) if not is_even_number(each.rows)})
        return replace(one, rows=" or ".join(uneven) or "rows")  # of which ranks may have more or fewer
    if isinstance(one, Partial) and isinstance(other, Partial) and replace(one, weight="") == replace(other, weight=""):
        if one.reduce == "sum":
            return replace(one, weight="")  # a sum all the same, of one number or another
        if one.reduce == "mean" and is_even_number(one.weight) and is_even_number(other.weight):
            return replace(one, weight="rows")  # no rank's counts for more than another's
    return PerRank("join", f"one is {told(one)}, another {told(other)}")


def told(placement: Placement) -> str:
    """A placement in words."""
    if isinstance(placement, Replicate):
        return "replicated"
    if isinstance(placement, Shard):
        return f"sharded along axis {placement.axis}"
    if isinstance(placement, Each):
        return "of one sample after the other"
    if isinstance(placement, Partial):
        return f"each rank's {placement.reduce}"
    return f"different on each rank since {placement.operation}: {placement.reason}"
