"""An expression whose value is made global, and what joins the ranks' values."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum

from autodist.placement import Partial, Placement, Replicate, Shard
from autodist.solve.facts import is_number_of_samples, is_sum, is_weighted
from autodist.source import Source

IN_TRAINING = "torch.is_grad_enabled()"
"""Holds where a rank has its share of the samples, and not in an evaluation of which every rank has all data."""


class Joining(Enum):
    """What each rank has of a value, which says what joins them."""

    ROWS = "this rank's samples, along the first axis"
    MEAN = "a mean over this rank's samples"
    WEIGHTED = "a mean over some of this rank's samples, of which ranks have different numbers"
    SUM = "a sum over this rank's samples"
    COUNT = "the number of this rank's samples, equal on all ranks"
    MAX = "the largest number in this rank's samples"
    MIN = "the smallest number in this rank's samples"
    NOTHING = "computed from this rank's samples in no simple way"


def joining(placement: Placement) -> Joining:
    """What joins the ranks' values of something that lies so."""
    match placement:
        case Shard():
            return Joining.ROWS
        case Partial(reduce="mean"):
            return Joining.WEIGHTED if is_weighted(placement) else Joining.MEAN
        case Partial(reduce="max"):
            return Joining.MAX
        case Partial(reduce="min"):
            return Joining.MIN
        case Replicate():
            return Joining.COUNT
    if is_sum(placement):
        return Joining.COUNT if is_number_of_samples(placement) else Joining.SUM
    return Joining.NOTHING


@dataclass(frozen=True)
class Reduction:
    """An expression whose value must be made global, ``by`` what joins the ranks'. ``hoist`` is the guarded statement
    that it has to be computed before; ``switch`` holds where it is not that of all ranks already. ``of`` is what a mean
    is taken of, if ranks have different numbers of them; ``padded`` if rows may be longer on one rank than on another;
    ``together`` if several rows of each sample stand beside each other, which those of other samples must not part;
    ``number`` if it is surely one of Python, ``tensor`` if it is surely one, ``array`` if it may be one of numpy."""

    source: Source
    node: ast.expr
    by: Joining
    hoist: ast.stmt | None = None
    switch: str | None = None
    of: ast.expr | None = None
    padded: bool = False
    together: bool = False
    number: bool = False
    tensor: bool = False
    array: bool = False
