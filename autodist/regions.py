"""What happens in statements, and in the functions that they call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.source import Source, walk

TOGETHER = frozenset("backward step wrap wrapped collective".split())
"""What all ranks come to at once."""


def within(event: Event, statements: frozenset[ast.AST]) -> bool:
    """Whether an event happens in one of the statements, or in what they call."""
    if not statements:
        return False
    inside = _inside(statements)
    return event.node in inside or any(call.node in inside for call in event.calls)


@lru_cache(maxsize=16)
def _inside(statements: frozenset[ast.AST]) -> frozenset[ast.AST]:
    return frozenset(node for statement in statements for node in walk(statement))


@once_a_run
def last_within(run: Interpreter, statement: ast.AST) -> int | None:
    """The order of the last event in a statement, or in what it calls."""
    return _last(run).get(statement)


@once_a_run
def _last(run: Interpreter) -> dict[ast.AST, int]:
    found: dict[ast.AST, int] = {}
    for event in run.events:
        chain = [(call.node, call.source) for call in event.calls if call.node is not None]
        for node, source in [*chain, (event.node, event.source)]:
            if found.get(node) != event.order:
                found[node] = event.order
                for outer in source.ancestors(node):
                    if found.get(outer) == event.order:
                        break
                    found[outer] = event.order
    return found


def stands_in(source: Source, node: ast.AST, statements: frozenset[ast.AST]) -> bool:
    """Whether a node is one of the statements, or part of one."""
    return node in statements or any(ancestor in statements for ancestor in source.ancestors(node))


def exclusive(source: Source, first: ast.AST, second: ast.AST) -> bool:
    """Whether two places lie in different branches of one condition, so that only one of them runs."""
    branches = dict(_branches(source, first))
    return any(branches.get(test, branch) != branch for test, branch in _branches(source, second))


def _branches(source: Source, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    """The conditions around ``node``, and whether it is where they hold."""
    for parent in source.ancestors(node):
        if isinstance(parent, ast.If):
            yield parent, node in parent.body
        node = parent
