"""What an expression may evaluate to: results of operations, constants, and objects of the script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autodist.program.graph import Operation, Region

MOST_CONSTANTS = 8


class _Unknown:
    """No single constant is known; compares equal to nothing else."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN = _Unknown()

Constant = tuple[type, Any]
"""A constant with its type, since 1, 1.0 and True are equal."""

ANY_CONSTANT: Constant = (_Unknown, "any")
"""Some constant, of more than are worth telling apart: a counter."""


@dataclass(frozen=True)
class Value:
    """What an expression may evaluate to: any of these. Several operations mean that the branches of a program meet
    here (the inputs of a phi)."""

    operations: frozenset[Operation] = frozenset()
    constants: frozenset[Constant] = frozenset()
    things: frozenset[Any] = frozenset()
    """Objects by their allocation sites, functions, classes, modules and names of libraries."""
    carried_by: frozenset[Region] = frozenset()
    """The loops of which it may be what an earlier round has left: `prev` of `row - prev`."""

    def __or__(self, other: Value) -> Value:
        if self is other or other is EMPTY:
            return self
        if self is EMPTY:
            return other
        operations = _union(self.operations, other.operations)
        things = _union(self.things, other.things)
        constants = _union(self.constants, other.constants)
        carried = _union(self.carried_by, other.carried_by)
        if (operations, things, constants, carried) == (self.operations, self.things, self.constants, self.carried_by):
            return self
        if len(constants) > MOST_CONSTANTS or ANY_CONSTANT in constants:
            constants = MANY.constants
        return Value(operations, constants, things, carried)

    def __bool__(self) -> bool:
        """Whether it may be anything: code that is never reached gives nothing."""
        return bool(self.operations or self.constants or self.things)

    def left_by(self, loops: frozenset[Region]) -> Value:
        """The same, as earlier rounds of some loops may have left it."""
        return self if loops <= self.carried_by else replace(self, carried_by=self.carried_by | loops)

    def not_left_by(self, loop: Region) -> Value:
        """The same, if this round of a loop has bound it."""
        return replace(self, carried_by=self.carried_by - {loop}) if loop in self.carried_by else self

    @property
    def anew(self) -> Value:
        """The same, as if this round had computed it."""
        return replace(self, carried_by=frozenset()) if self.carried_by else self

    @property
    def results(self) -> Value:
        """The results of operations among it."""
        return Value(self.operations, carried_by=self.carried_by)

    @property
    def constant(self) -> Any:
        """The constant that it is, or UNKNOWN."""
        if len(self.constants) != 1 or self.operations or self.things:
            return UNKNOWN
        (found,) = self.constants
        return UNKNOWN if found is ANY_CONSTANT else found[1]

    @property
    def is_constant(self) -> bool:
        """Whether it is one constant that is known."""
        return self.constant is not UNKNOWN

    @property
    def functions(self) -> frozenset[str]:
        """The names of the functions, classes and modules of libraries that it may be."""
        named = (each for each in self.things if hasattr(each, "name"))
        return frozenset(each.name for each in named if not (hasattr(each, "node") or hasattr(each, "frame")))

    @property
    def classes(self) -> frozenset[str]:
        """The names of the classes of libraries of which it may be an object."""
        return frozenset(each.name for each in self.things if getattr(each, "roles", None) is not None and each.name)

    @property
    def operation(self) -> Operation | None:
        """The one operation that gives it, if nothing else may."""
        if len(self.operations) != 1 or self.constants or self.things:
            return None
        return next(iter(self.operations))


def _union(one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
    return one if other <= one else one | other


EMPTY = Value()
"""No value: what code gives that is never reached."""
MANY = Value(constants=frozenset([ANY_CONSTANT]))


def constant(value: object) -> Value:
    """The value of a literal."""
    return Value(constants=frozenset([(type(value), value)]))


def joined(values: Iterable[Value]) -> Value:
    """What one of several values may be."""
    result = EMPTY
    for value in values:
        result = result | value
    return result
