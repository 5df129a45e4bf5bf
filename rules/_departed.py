"""Imports that nothing needs any more."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autodist.edits import Edit, RemoveStatement, ReplaceStatement
from autodist.script import Model
from autodist.source import Source, last_name, walk


def with_condition(source: Source, statement: ast.stmt) -> ast.stmt:
    """What goes with a statement: conditions under which nothing else is done, `if torch.cuda.is_available():`."""
    parent = source.parents.get(statement)
    alone = isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse
    if not isinstance(parent, ast.If) or not alone or not all(map(_only_asks, walk(parent.test))):
        return statement
    return with_condition(source, parent)


def _only_asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("is_available", "device_count", "len", "isinstance")
    return not isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom))


def only_drops(model: Model, statement: ast.stmt) -> bool:
    """Whether a statement is the condition for a wrapper that goes, and nothing else: what is written for the model
    takes its place."""
    return any(
        isinstance(statement, ast.If) and statement.body == [site.statement] and not statement.orelse
        for site in model.dropped
    )


def without_imports(
    source: Source, gone: Collection[ast.AST], kept: Collection[ast.AST] = (), names: Collection[str] = ()
) -> list[Edit]:
    """Drop ``names``, and what only ``gone`` code uses; ``kept`` are parts of it that stay."""
    lost: set[ast.AST] = set()
    for node in gone:
        lost.update(all_but(node, kept))
    used = {each for node in walk(source.tree) if node not in lost for each in _names(node)}
    dropped = {each for node in lost for each in _names(node)} - used | set(names)
    return [edit for node in walk(source.tree) for edit in _without(node, dropped)]


def all_but(node: ast.AST, kept: Collection[ast.AST]) -> Iterator[ast.AST]:
    """The node and all in it, without the parts that are kept."""
    if any(node is each for each in kept):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from all_but(child, kept)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        yield node.value  # it may be meant in `__all__`, or as a forward reference


def _without(node: ast.AST, dropped: Collection[str]) -> Iterator[Edit]:
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return
    left = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) not in dropped]
    if not left:
        yield RemoveStatement(node)
    elif len(left) < len(node.names):
        shorter: ast.stmt = ast.Import(left)
        if isinstance(node, ast.ImportFrom):
            shorter = ast.ImportFrom(node.module, left, node.level)
        yield ReplaceStatement(node, ast.unparse(shorter) + "\n")
