"""Assertions that several rules, or one for several loaders, would write: each is made once."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.edits import Edit, InsertBefore
from autodist.source import Source


def without_repeats(source: Source, planned: Iterable[Edit]) -> list[Edit]:
    """The edits but for assertions that have been made already wherever these would be reached."""
    planned = list(planned)
    asserted = [edit for edit in planned if isinstance(edit, InsertBefore) and edit.code.startswith("assert ")]
    asserted.sort(key=lambda edit: getattr(edit.anchor, "lineno", 0))
    made: list[InsertBefore] = []
    dropped: set[int] = set()
    for edit in asserted:
        if any(_covers(source, earlier, edit) for earlier in made if earlier.code == edit.code):
            dropped.add(id(edit))
        else:
            made.append(edit)
    return [edit for edit in planned if id(edit) not in dropped]


def _covers(source: Source, earlier: InsertBefore, later: InsertBefore) -> bool:
    """Whether what is asserted before one statement has been, and still holds, wherever another one is reached."""
    first, last = earlier.anchor, later.anchor
    home = source.home(last)
    if not (isinstance(first, ast.stmt) and isinstance(last, ast.stmt)) or source.home(first) is not home:
        return False
    around = [last, *source.ancestors(last)]
    inside = around[: around.index(home)] if home in around else around
    if not any(isinstance(each, ast.stmt) and first in source.block(each) for each in inside):
        return False
    between = [n for n in ast.walk(home) if first.lineno <= getattr(n, "lineno", 0) <= last.lineno]
    loops = [each for each in inside if isinstance(each, (ast.For, ast.AsyncFor, ast.While))]
    happens = [*between, *(node for loop in loops for node in ast.walk(loop))]
    said = list(ast.walk(ast.parse(earlier.code)))
    names = {node.id for node in said if isinstance(node, ast.Name)}
    holders = {root for node in said if isinstance(node, (ast.Attribute, ast.Subscript)) and (root := _root(node))}
    shared = {name for n in ast.walk(source.tree) if isinstance(n, (ast.Global, ast.Nonlocal)) for name in n.names}
    return names.isdisjoint(shared) and not any(_binds(n, names) or _may_change(n, holders) for n in happens)


def _root(node: ast.expr) -> str | None:
    """`args` of `args.sizes["train"]`"""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _binds(node: ast.AST, names: set[str]) -> bool:
    """Whether a name, or what is kept below it, is given another value."""
    stores = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del))
    return stores and isinstance(node, ast.expr) and _root(node) in names


def _may_change(node: ast.AST, holders: set[str]) -> bool:
    """Whether a function is handed an object that keeps a number, `adjust(args)`, or is a method of it."""
    if not isinstance(node, ast.Call):
        return False
    given = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    given += [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(isinstance(each, ast.Name) and each.id in holders for each in given)
