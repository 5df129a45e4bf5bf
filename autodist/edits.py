"""Typed edits, anchored to nodes of the syntax tree, applied to a file in one pass over its lossless tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from autodist.source import Source


@dataclass(frozen=True)
class Edit:
    """One change to the code at ``anchor``, a node of ``Source.tree`` (compared by identity)."""

    anchor: ast.AST


@dataclass(frozen=True)
class InsertBefore(Edit):
    """Put statements before the anchor statement, below the blank lines and above the comments that belong to it.

    Of several insertions before one statement, those with the lower ``order`` come first. What only ``prepares`` a
    value for the statement comes last, below its comments, and lets it share the guard of the statement above it, which
    the value must not depend on.
    """

    code: str
    order: int = 0
    prepares: bool = False


@dataclass(frozen=True)
class InsertAfter(Edit):
    """Put statements after the anchor statement."""

    code: str


@dataclass(frozen=True)
class Prepend(Edit):
    """Put statements first in the body of the anchor (function, loop, with, if; after a docstring)."""

    code: str


@dataclass(frozen=True)
class Append(Edit):
    """Put statements last in the body of the anchor (function, class, loop, module)."""

    code: str


@dataclass(frozen=True)
class Guard(Edit):
    """Run the anchor statement only ``if test:``. Neighbours with the same test share one ``if``;
    an ``if`` whose whole body is guarded takes the test into its condition."""

    test: str


@dataclass(frozen=True)
class Enclose(Edit):
    """Put the anchor statement where ``template``, one compound statement, has ``...``. Neighbours with the same
    template share one."""

    template: str


@dataclass(frozen=True)
class ReplaceExpr(Edit):
    """Write ``code`` instead of the anchor expression."""

    code: str


@dataclass(frozen=True)
class Hoist(Edit):
    """Bind the anchor expression, with its own edits applied, to ``name`` ahead of its statement, and write the name
    where it stood. ``code`` is the line that does so where the expression has no edits."""

    name: str
    code: str


@dataclass(frozen=True)
class WrapExpr(Edit):
    """Write ``template``, whose one ``{}`` stands for the anchor expression with its own edits applied; ``outer`` also
    with another wrapping of it."""

    template: str
    outer: bool = False


@dataclass(frozen=True)
class Recompose(Edit):
    """Write ``template`` instead of the anchor expression; ``{0}``, ``{1}`` … stand for ``parts``, expressions inside
    the anchor that stay, with their own edits applied. All else in the anchor goes."""

    template: str
    parts: tuple[ast.expr, ...] = ()


@dataclass(frozen=True)
class Unwrap(Edit):
    """Drop the header of the anchor, a ``with`` or an ``if`` without branches, and keep its body."""


@dataclass(frozen=True)
class ReplaceStatement(Edit):
    """Write ``code`` (any number of statements) instead of the anchor statement."""

    code: str


@dataclass(frozen=True)
class RemoveStatement(Edit):
    """Drop the anchor statement; a block that would be empty keeps ``pass``. ``with_comment`` drops the comment right
    above it as well, unless that may speak of the statement below."""

    with_comment: bool = False


@dataclass(frozen=True)
class SetArgument(Edit):
    """Set a keyword argument of the anchor call; ``position`` is its index where it may be passed by position."""

    name: str
    value: str
    position: int | None = None


@dataclass(frozen=True)
class RemoveArgument(Edit):
    """Drop a keyword argument of the anchor call (or the one at ``position``, if passed by position)."""

    name: str
    position: int | None = None


@dataclass(frozen=True)
class AddImport(Edit):
    """Import ``module`` (as ``alias``), or ``name`` from it (as ``alias``); anchored to the ``ast.Module``.

    The import comes ``above`` a statement at the top of the file that needs it there.
    """

    module: str
    name: str | None = None
    alias: str | None = None
    above: ast.stmt | None = None


class EditConflict(Exception):
    """Two edits that cannot both be made; ``first is second`` where one edit cannot be made by itself."""

    def __init__(self, first: Edit, second: Edit, reason: str) -> None:
        super().__init__(reason)
        self.first = first
        self.second = second
        self.reason = reason


class BrokenResult(Exception):
    """The edited text would not have been the Python that was meant: a defect of this engine or of an edit's code."""


def apply(source: Source, edits: Iterable[Edit]) -> str:
    """The new text of ``source``. Raises EditConflict when two edits cannot both be made.

    The lossless parser is imported here, because a run that changes nothing must not pay for it.
    """
    edits = tuple(edits)
    if not edits:
        return source.text
    from autodist.lossless.rewrite import rewrite

    return rewrite(source, edits)
