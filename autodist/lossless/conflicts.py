"""Merges equal edits, and finds those that cannot all be made before anything is changed."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence

from autodist.edits import (
    AddImport,
    Edit,
    EditConflict,
    Enclose,
    Guard,
    Hoist,
    InsertAfter,
    InsertBefore,
    Recompose,
    RemoveArgument,
    RemoveStatement,
    ReplaceExpr,
    ReplaceStatement,
    SetArgument,
    Unwrap,
    WrapExpr,
)
from autodist.source import Source

_SWALLOWS = (ReplaceExpr, Recompose, ReplaceStatement, RemoveStatement)
_OUTSIDE = (InsertBefore, InsertAfter, Guard, Enclose, WrapExpr)
"""Edits that stand around a node that another edit replaces."""

_ANCHORS: dict[type[Edit], type[ast.AST] | tuple[type[ast.AST], ...]] = {
    InsertBefore: ast.stmt,
    InsertAfter: ast.stmt,
    Guard: ast.stmt,
    Enclose: ast.stmt,
    ReplaceStatement: ast.stmt,
    RemoveStatement: ast.stmt,
    ReplaceExpr: ast.expr,
    Hoist: ast.expr,
    Recompose: ast.expr,
    Unwrap: (ast.With, ast.AsyncWith, ast.If),
    WrapExpr: ast.expr,
    SetArgument: ast.Call,
    RemoveArgument: ast.Call,
    AddImport: ast.Module,
}


def settle(source: Source, edits: Iterable[Edit]) -> list[Edit]:
    """The distinct edits, in the order given. Raises EditConflict."""
    distinct = list(dict.fromkeys(edits))
    by_anchor: dict[ast.AST, list[Edit]] = defaultdict(list)
    for edit in distinct:
        _check_anchor(source, edit)
        by_anchor[edit.anchor].append(edit)
    for group in by_anchor.values():
        _check_group(group)
    for edit in distinct:
        _check_not_swallowed(source, edit, by_anchor)
    return distinct


def _check_anchor(source: Source, edit: Edit) -> None:
    wanted = _ANCHORS.get(type(edit))
    has_block = isinstance(getattr(edit.anchor, "body", None), list)
    if not (has_block if wanted is None else isinstance(edit.anchor, wanted)):
        raise EditConflict(edit, edit, f"{type(edit).__name__} cannot be made to a {type(edit.anchor).__name__}")
    if edit.anchor is not source.tree and edit.anchor not in source.parents:
        raise EditConflict(edit, edit, "the node belongs to another file")


def _check_group(group: Sequence[Edit]) -> None:
    """Raise if two edits of one node exclude each other."""
    for kinds in ((Guard, Enclose, RemoveStatement, Unwrap), (WrapExpr,), (*_SWALLOWS, Hoist, Unwrap)):
        same = [edit for edit in group if isinstance(edit, kinds)]
        if len({isinstance(edit, WrapExpr) and edit.outer for edit in same}) == len(same):
            continue
        if len(same) > 1:
            raise EditConflict(same[0], same[1], "both change the same code, in different ways")
    names: dict[str, Edit] = {}
    for edit in group:
        if isinstance(edit, SetArgument | RemoveArgument):
            other = names.setdefault(edit.name, edit)
            if other is not edit and _outcome(other) != _outcome(edit):
                raise EditConflict(other, edit, f"both change the argument {edit.name!r}, in different ways")


def _outcome(edit: Edit) -> str | None:
    return edit.value if isinstance(edit, SetArgument) else None


def _check_not_swallowed(source: Source, edit: Edit, by_anchor: dict[ast.AST, list[Edit]]) -> None:
    """Raise if other edits drop the code that ``edit`` changes."""
    child: ast.AST | None = None
    below: set[ast.AST] = set()
    for node in (edit.anchor, *source.ancestors(edit.anchor)):
        for other in by_anchor.get(node, ()):
            if other is edit or (child is None and isinstance(edit, _OUTSIDE)):
                continue
            if isinstance(other, Recompose) and not below.isdisjoint(other.parts):
                continue
            if isinstance(other, Unwrap) and not isinstance(child, (ast.withitem, ast.expr)):
                continue
            if isinstance(other, (*_SWALLOWS, Unwrap)) or (child is not None and _drops(other, child)):
                raise EditConflict(other, edit, "one drops code that the other changes")
        child = node
        below.add(node)


def _drops(edit: Edit, child: ast.AST) -> bool:
    """Whether ``edit``, an argument edit, drops ``child``, a part of its call."""
    if not isinstance(edit, SetArgument | RemoveArgument) or not isinstance(edit.anchor, ast.Call):
        return False
    if isinstance(child, ast.keyword):
        return child.arg == edit.name
    if edit.position is None or any(keyword.arg == edit.name for keyword in edit.anchor.keywords):
        return False
    args = edit.anchor.args[: edit.position + 1]
    starred = any(isinstance(arg, ast.Starred) for arg in args)
    return not starred and len(args) > edit.position and args[edit.position] is child
