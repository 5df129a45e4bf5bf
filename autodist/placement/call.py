"""What a transfer function is told of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autodist.placement.lattice import PAIRS, PerRank, Placement, Shard

ROWS = "rows"
OTHER_SIZE = 1_000_003
"""Stands for a size that is a setting of the script: no product of other sizes."""


def told_parts(sizes: Iterable[int | None]) -> int:
    """How many parts are made of a sample by joining its axis with others of some sizes, or 0 where one is not told."""
    made = 1
    for each in sizes:
        made *= each if each is not None and 0 < each < OTHER_SIZE else 0
    return made


@dataclass(frozen=True)
class Operand:
    """A value that a call is given. ``sizes`` has a number for each axis, None where it is unknown or differs over the
    ranks; ``rows`` names the number that counts the entries along the sharded axis, ``name`` the value itself."""

    placement: Placement
    sizes: tuple[int | None, ...] = ()
    rows: str = ROWS
    name: str = ""

    @property
    def axes(self) -> int:
        """How many axes it has."""
        return len(self.sizes)

    @property
    def shard(self) -> int | None:
        """The axis along which it is sharded."""
        return self.placement.axis if isinstance(self.placement, Shard) else None


@dataclass(frozen=True)
class Call:
    """A call of an operation: its operands, and what its other arguments say (the axes that it names, or the sizes)."""

    operation: str
    operands: tuple[Operand, ...]
    axis: int | tuple[int, ...] | slice | None = field(default=None, hash=False)
    untold: bool = False
    """Whether it is given an axis, and it is not known which."""
    keepdim: bool = False
    sizes: tuple[int | None, ...] = ()
    without_axes: bool = False
    """Whether it is told that there are no sizes: `torch.ones([])`."""
    equation: str = ""
    words: Mapping[str, int | None] = field(default_factory=dict, hash=False)
    """How long the axes of a pattern are that are told by their words: `rearrange(x, "(b n) d -> b n d", n=6)`."""
    reduction: str = "mean"
    """What is made of several numbers, empty if it is not known."""
    training: bool = True
    batch_first: bool = False
    is_told: bool = True
    """Whether it is given the argument that the table names."""
    bounded: bool = False
    """Whether it is given a number beside what it computes with, other than zero: `x.clamp(max=1)`."""
    leaves_out: bool = False
    """Whether a loss leaves out or weighs targets: `ignore_index=0`, or weights of classes, which are no operand."""
    mixed: slice | None = field(default=None, hash=False)
    """The axes that it computes together, where an argument says which: `F.layer_norm(x, x.shape[1:])`."""
    width: int | None = None
    """How many numbers a layer gives along the axis that it computes."""
    numbers: bool = False
    """Whether it is given numbers that samples hold, as of their classes, to take others by."""
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What the table says of the operation."""

    @property
    def first(self) -> Operand:
        """The first operand."""
        return self.operands[0]

    def number(self, name: str) -> int | None:
        """A parameter of the table that is a number."""
        value = self.parameters.get(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str:
        """A parameter of the table that is a text."""
        value = self.parameters.get(name)
        return value if isinstance(value, str) else ""

    def named(self, of: int = 0) -> tuple[int, ...]:
        """The axes that it names, as it names them; ``of`` is how many there are."""
        if isinstance(self.axis, slice):
            return tuple(range(of))[self.axis]
        return self.axis if isinstance(self.axis, tuple) else () if self.axis is None else (self.axis,)

    def axes(self) -> tuple[int, ...]:
        """The axes of the first operand that it works along, counted from the first: all, if it names none."""
        told, default = self.named(self.first.axes), self.number("default")
        implicit = self.parameters.get("implicit") and not self.untold
        if self.axis is None and implicit:  # as torch chose it where none was told
            told = (0,) if self.first.axes in (1, 3) else (1,)
        elif self.axis is None:
            told = tuple(range(self.first.axes)) if default is None else (default,)
        along = tuple(each % self.first.axes for each in told)
        beside = self.parameters.get("beside") and self.axis is not None
        return tuple(each for each in range(self.first.axes) if each not in along) if beside else along

    def apart(self, reason: str) -> PerRank:
        """A result that lies in no simple way."""
        return PerRank(self.operation, reason)

    def paired(self, reason: str) -> PerRank:
        """The samples of a rank along one axis, each of them combined with each of them along another."""
        return PerRank(self.operation, reason, blocks=PAIRS)
