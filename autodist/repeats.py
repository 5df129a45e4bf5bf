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
    around = [last, *source.ancestors(last)]
    home = source.home(last)
    if not (isinstance(first, ast.stmt) and isinstance(last, ast.stmt)) or source.home(first) is not home:
        return False
    inside = around[: around.index(home)] if home in around else around
    if not any(isinstance(each, ast.stmt) and first in source.block(each) for each in inside):
        return False
    loops = [each for each in inside if isinstance(each, (ast.For, ast.AsyncFor, ast.While))]
    region = [*loops, *(n for n in ast.walk(home) if first.lineno <= getattr(n, "lineno", 0) <= last.lineno)]
    names = {node.id for node in ast.walk(ast.parse(earlier.code)) if isinstance(node, ast.Name)}
    return not any(_changes(node, names) for part in region for node in ast.walk(part))


def _changes(node: ast.AST, names: set[str]) -> bool:
    """Whether a name, or what is kept below it, is given another value."""
    stores = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del))
    while stores and isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return stores and isinstance(node, ast.Name) and node.id in names
