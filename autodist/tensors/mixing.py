"""Why rows of a batch may have been mixed, in the words that a refusal uses."""

from __future__ import annotations

from collections.abc import Iterable

from autodist.spread import COLUMNS, ROWS
from autodist.values import Draw, Mixing, Value

STATE = "carries a state that has the size of the whole batch"
TIME_FIRST = "takes its first axis for time"
ONE = "has one sample"
ONE_BY_ONE = "takes one row after the other"
SINGLE = "takes one row at a time"
WRITTEN = "writes rows into a tensor that has those of all ranks"
ENVIRONMENT = "draws what happens next from the output of the model: an environment answers, not a data set"
GRAPH = "is a matrix product over the rows, which mixes them"
PAIRED = "broadcasts tensors of different shapes, which pairs every row with every other one"
STATISTIC = "puts a number that is computed from all rows beside each of them"
CHOSEN = (
    "picks some of the rows by a condition or an index, more on one rank than on another: a mean over these is not the "
    "mean of the ranks' means"
)


def is_whole(value: Value) -> bool:
    """Whether a value is computed from this rank's rows of a tensor that holds all of them."""
    return value.spread.is_local and any(isinstance(each, Draw) and each.whole for each in value.origins)


def mixings(value: Value) -> list[Mixing]:
    """What may have mixed the rows of a value: what tells most first, then in the order of the source, what is inside
    an expression before all of it."""
    telling = {ONE: 0, ENVIRONMENT: 0, GRAPH: 1}

    def place(mixing: Mixing) -> tuple[object, ...]:
        node = mixing.node
        end = (node.end_lineno, node.end_col_offset)
        return (
            telling.get(mixing.reason, 2),
            str(mixing.source.path),
            node.lineno,
            node.col_offset,
            *end,
            mixing.reason,
        )

    return sorted((each for each in value.origins if isinstance(each, Mixing)), key=place)


def pairs(values: Iterable[Value]) -> bool:
    """Whether broadcasting pairs every row of one with every row of another: their numbers of axes differ."""
    axes = {each.axes for each in values if is_whole(each) and each.spread in (ROWS, COLUMNS)}
    return len(axes - {None}) > 1
