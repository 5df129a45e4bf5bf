"""Conditions on one value, and whether some value meets all of them: `n > 1` and `n == 1` exclude each other."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.LtE: ast.Gt,
    ast.GtE: ast.Lt,
}
"""Of each comparison the one that holds where it does not."""
MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}
"""What `1 < n` says of `n`."""
COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.Is: lambda one, other: one is other or other is not None and type(one) is type(other) and one == other,
    ast.In: lambda one, several: one in several,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


@dataclass(frozen=True)
class Condition:
    """That a value counts as true, or compares so with a constant, or that it does not."""

    holds: bool
    compares: type[ast.cmpop] | None = None
    kind: type | None = None
    """The type of the constant: 1, 1.0 and True are equal."""
    other: Any = None

    def meets(self, value: object) -> bool:
        """Whether a value meets it; not if it cannot be asked, where the script would stop."""
        if self.compares is None:
            return bool(value) is self.holds
        try:
            return bool(COMPARED[self.compares](value, self.other)) is self.holds
        except TypeError:
            return False


def compared(compares: type[ast.cmpop], other: object, holds: bool) -> Condition:
    """That a value compares so with a constant, or does not."""
    if (opposite := OPPOSITE.get(compares)) is not None:
        compares, holds = opposite, not holds
    return Condition(holds, compares, type(other), other)


@lru_cache(maxsize=4096)
def can_meet(conditions: frozenset[Condition]) -> bool:
    """Whether some value meets all conditions."""
    return any(all(each.meets(value) for each in conditions) for value in _tried(conditions))


def _tried(conditions: Iterable[Condition]) -> Iterable[object]:
    """One value at least of each kind that conditions tell apart: their constants, what lies between and beyond those,
    and what is none of them."""
    told = [each.other for each in conditions if each.compares is not None]
    told = [one for each in told for one in (each if isinstance(each, tuple) else (each,))]
    yield from (None, True, False, "", "\0other", object())
    yield from told
    numbers = sorted({float(each) for each in told if isinstance(each, (int, float))} | {0.0})
    yield from (numbers[0] - 1, *((one + next_) / 2 for one, next_ in pairwise(numbers)), numbers[-1] + 1)
    for each in (each for each in told if isinstance(each, str)):
        yield each + "\0"
