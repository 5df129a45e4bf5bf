"""The ways that lead to a line: through calls, branches and loops, and past what leaves them early."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from autodist.ranks.reading import Ranks, same_name
from autodist.source import Source, all_of, walk

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MOST_WAYS, DEEPEST = 48, 12
Test: TypeAlias = tuple[ast.expr, bool]
"""A condition, and whether it has to hold."""


@dataclass
class Way:
    """One way that leads to a line. ``left`` are the conditions under which it is not gone to its end: all of one of
    these hold."""

    tests: list[Test] = field(default_factory=list)
    left: list[list[Test]] = field(default_factory=list)
    within: list[ast.AST] = field(default_factory=list)
    """The loops, calls to other processes and handlers of exceptions that it leads through."""
    through: list[tuple[Source, ast.AST]] = field(default_factory=list)
    """The calls that it leads through."""

    def joined(self, outer: Way) -> Way:
        """This way, entered by another."""
        return Way(
            outer.tests + self.tests, outer.left + self.left, outer.within + self.within, outer.through + self.through
        )


class Ways:
    """The ways through a program."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    @cached_property
    def callers(self) -> dict[ast.AST, list[tuple[Source, ast.Call]]]:
        """The calls of each function, and those that are given it to call."""
        found: dict[ast.AST, list[tuple[Source, ast.Call]]] = {}
        given: dict[ast.AST, list[tuple[Source, ast.Call]]] = {}
        at = self._ranks.program.at
        for source in self._ranks.sources:
            for node in walk(source.tree):
                if isinstance(node, ast.Call):
                    for function in set(self._ranks.called(at(node.func))):
                        found.setdefault(function, []).append((source, node))
                    for part in (*node.args, *(each.value for each in node.keywords)):
                        for function in set(self._ranks.called(at(part))):
                            given.setdefault(function, []).append((source, node))
        return {**given, **found}

    def to(self, node: ast.AST, source: Source, depth: int = 0) -> list[Way]:
        """The ways that lead to a node."""
        here = self._within_function(node, source)
        function = source.function(node)
        calls = self.callers.get(function, []) if function is not None and depth < DEEPEST else []
        if not calls:
            return [here]
        found: list[Way] = []
        for outer, call in calls:
            if any(each is function for each in outer.ancestors(call)):  # it calls itself
                continue
            for way in self.to(call, outer, depth + 1):
                way.through.append((outer, call))
                found.append(here.joined(way))
                if len(found) >= MOST_WAYS:
                    return found
        return found or [here]

    def reached(self, way: Way, rank: int) -> bool | None:
        """Whether a rank goes a way, as far as it is known: None where that hangs on what is not known."""
        holds = self._ranks.holds
        told = [each if wanted or each is None else not each for t, wanted in way.tests for each in [holds(t, rank)]]
        if False in told:
            return False
        for tests in way.left:
            if all(holds(test, rank) is wanted for test, wanted in tests):
                return False
        return None if None in told else True

    def open(self, way: Way) -> frozenset[tuple[ast.AST, bool]]:
        """The conditions on a way of which it is not known whether they hold."""
        return frozenset((test, wanted) for test, wanted in way.tests if self._ranks.holds(test, 0) is None)

    def _within_function(self, node: ast.AST, source: Source) -> Way:
        way, child = Way(), node
        for parent in source.ancestors(node):
            if isinstance(parent, FUNCTIONS):
                self._past(parent.body, child, way)
                break
            if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and child is not parent.test:
                body = parent.body if isinstance(parent.body, list) else [parent.body]
                way.tests.append((parent.test, child in body))
            if isinstance(parent, ast.BoolOp):
                wanted = isinstance(parent.op, ast.And)
                way.tests += [(each, wanted) for each in parent.values[: parent.values.index(child)]]  # type: ignore[arg-type]
            if isinstance(parent, (*LOOPS, ast.ExceptHandler, ast.comprehension)):
                way.within.append(parent)
            for block in ("body", "orelse", "finalbody"):
                statements = getattr(parent, block, None)
                if isinstance(statements, list) and child in statements:
                    self._past(statements, child, way)
            if isinstance(parent, LOOPS) and child in parent.body:
                for tests, leaving in _leaving(parent.body):
                    if tests and isinstance(leaving, (ast.Break, ast.Return)):
                        way.left.append(tests)
            child = parent
        return way

    def _past(self, statements: list[ast.stmt], child: ast.AST, way: Way) -> None:
        """Note what leaves a block ahead of one of its statements."""
        before = statements[: statements.index(child)] if isinstance(child, ast.stmt) and child in statements else []
        way.left += [tests for tests, _ in _leaving(before)]


def _leaving(statements: list[ast.stmt]) -> Iterator[tuple[list[Test], ast.stmt]]:
    """What leaves a block for good, and the conditions under which it does."""
    for each in statements:
        if isinstance(each, ast.If):
            for body, wanted in ((each.body, True), (each.orelse, False)):
                for tests, leaving in _leaving(body):
                    yield [(each.test, wanted), *tests], leaving
        elif isinstance(each, (ast.With, ast.AsyncWith, ast.Try)):
            yield from _leaving(each.body)
        elif isinstance(each, LOOPS):
            yield from ((tests, end) for tests, end in _leaving(each.body) if isinstance(end, ast.Return))
        elif isinstance(each, (ast.Return, ast.Continue, ast.Break)) or _exits(each):
            yield [], each


def _exits(statement: ast.stmt, well: bool = True) -> bool:
    """Whether a program ends here, and ``well``: after a failure, launchers end the other ranks."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("sys.exit", "exit", "quit"):
        return False
    status = call.args[0] if call.args else None
    return (status is None or isinstance(status, ast.Constant) and not status.value) is well


def fails(node: ast.AST, source: Source) -> bool:
    """Whether the block that a node stands in ends in a failure of the program."""
    statement = source.statement(node)
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(source.parents.get(statement), block, None)
        if isinstance(statements, list) and statement in statements:
            last = statements[-1]
            return isinstance(last, ast.Raise) or isinstance(last, ast.stmt) and _exits(last, well=False)
    return False


def assigned_under(name: ast.Name | ast.Attribute, source: Source) -> Iterator[ast.expr]:
    """The conditions under which a name, or an attribute of any object, is bound to something else."""
    for node in walk(source.tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and same_name(node, name) and isinstance(node.ctx, ast.Store):
            yield from (each.test for each in all_of(source.statement(node), ast.IfExp))
            for parent in source.ancestors(node):
                if isinstance(parent, FUNCTIONS):
                    break
                if isinstance(parent, ast.If):
                    yield parent.test
