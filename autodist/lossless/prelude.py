"""The top of a file, where its imports stand: what belongs to it, and where one more import goes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autodist.edits import AddImport
from autodist.source import walk

ACTING = frozenset("print seed manual_seed manual_seed_all seed_everything set_seed makedirs mkdir set_device".split())
"""Calls before which the ranks find each other."""


@dataclass(frozen=True)
class Place:
    """Where an import goes: next to ``statement``, or first in the file where there is none."""

    statement: ast.stmt | None
    before: bool = False
    """Above the statement, rather than below it."""
    apart: bool = False
    """With a blank line between it and the code that follows."""
    gap: bool = False
    """With a blank line between it and the statement."""


def import_code(edit: AddImport, *more: AddImport) -> str:
    """The statement that the edits stand for; ``more`` name other members of the same module."""
    if edit.name is None:
        return f"import {_renamed(edit.module, edit.alias)}"
    return f"from {edit.module} import {', '.join(_renamed(each.name or '', each.alias) for each in (edit, *more))}"


def _renamed(name: str, alias: str | None) -> str:
    return name if alias in (None, name) else f"{name} as {alias}"


def statements(edits: Iterable[AddImport]) -> list[list[AddImport]]:
    """The edits in the order in which they are written, members of one module together, each import once."""
    once = {sort_key(edit): edit for edit in sorted(edits, key=lambda edit: edit.above is not None)}
    found: list[list[AddImport]] = []
    for edit in sorted(once.values(), key=sort_key):
        if found and edit.name is not None and found[-1][0].name is not None and found[-1][0].module == edit.module:
            found[-1].append(edit)
        else:
            found.append([edit])
    return found


def prelude(tree: ast.Module) -> list[ast.stmt]:
    """The statements from the top of the file to the last import that runs before the program's own code."""
    end = 0
    for index, statement in enumerate(tree.body):
        if not _prepares(statement) or _acts(statement):
            break
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in walk(statement)):
            end = index + 1
    return tree.body[:end]


def below(tree: ast.Module) -> ast.stmt:
    """The first statement below the prelude, the last of a file that has nothing else."""
    rest = tree.body[len(prelude(tree)) :]
    return next((each for each in rest if not is_preface(each)), tree.body[-1])


def is_preface(statement: ast.stmt) -> bool:
    """An import, with what stands in where there is no such library, or a docstring."""
    if isinstance(statement, ast.Try):
        return all(map(is_preface, statement.body))
    return isinstance(statement, ast.Import | ast.ImportFrom) or _is_docstring(statement)


def imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """The imports that every line below the prelude can rely on."""
    return [statement for statement in prelude(tree) if isinstance(statement, ast.Import | ast.ImportFrom)]


def place(tree: ast.Module, edit: AddImport) -> Place:
    """Where an expert would write the import: among its relatives, in order; else last; else on top."""
    return _ahead_of_line(tree, _place(tree, edit))


def _ahead_of_line(tree: ast.Module, found: Place) -> Place:
    """The same, ahead of a line on which something follows that may need the import: `import torch; main()`"""
    at = found.statement
    if at is None or found.before or at not in tree.body:
        return found
    line = [each for each in tree.body if each.lineno <= (at.end_lineno or 0) <= (each.end_lineno or 0)]
    return Place(line[0], before=True) if line[-1] is not at else found


def _place(tree: ast.Module, edit: AddImport) -> Place:
    present = _present(tree, edit)
    ordinary = [statement for statement in present if not _is_future(statement)]
    root = edit.module.partition(".")[0]
    relatives = [statement for statement in ordinary if root in _roots(statement)]
    if not relatives and root in sys.stdlib_module_names:
        relatives = [statement for statement in ordinary if _roots(statement) <= sys.stdlib_module_names]
    key = (edit.name is not None, edit.module)
    earlier = [statement for statement in relatives if _key(statement) <= key]
    if earlier:
        return Place(earlier[-1])
    if relatives:
        return Place(relatives[0], before=True)
    if ordinary and root in sys.stdlib_module_names:
        return Place(ordinary[0], before=True, apart=True)
    if edit.above is not None:
        return Place(edit.above, before=True, apart=True)
    if ordinary:
        return Place(_below_settings(tree, ordinary[-1]))
    top = opening(tree)
    return Place(top[-1], apart=True, gap=True) if top else Place(None, apart=True)


def is_present(tree: ast.Module, edit: AddImport) -> bool:
    """Whether the file imports just this, at its top."""
    for statement in _present(tree, edit):
        for item in statement.names:
            if isinstance(statement, ast.Import):
                same = (item.name, None, item.asname) == (edit.module, edit.name, edit.alias)
            else:
                same = (statement.module, item.name, item.asname) == (edit.module, edit.name, edit.alias)
                same = same and not statement.level
            if same:
                return True
    return False


def _present(tree: ast.Module, edit: AddImport) -> list[ast.Import | ast.ImportFrom]:
    """The imports that the edit can rely on, and stand next to."""
    present = imports(tree)
    if edit.above is None:
        return present
    return [statement for statement in present if statement.lineno < edit.above.lineno]


def sort_key(edit: AddImport) -> tuple[bool, str, str, str]:
    """Imports in the order in which they are written."""
    return edit.name is not None, edit.module, edit.name or "", edit.alias or ""


def opening(node: ast.AST) -> list[ast.stmt]:
    """The docstring and ``from __future__`` imports of ``node``, which stay first in its body."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    end = 1 if node.body and _is_docstring(node.body[0]) else 0
    while isinstance(node, ast.Module) and end < len(node.body) and _is_future(node.body[end]):
        end += 1
    return node.body[:end]


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _prepares(statement: ast.stmt) -> bool:
    """Whether ``statement`` is an import, or sets the stage for one as ``os.environ[...] = ...`` does."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Expr() | ast.Pass() | ast.Raise():
            return True
        case ast.Assign(targets=targets, value=value):
            return isinstance(value, ast.Constant) or not any(isinstance(target, ast.Name) for target in targets)
        case ast.If(body=body, orelse=orelse):
            return _all_prepare(body, orelse)
        case ast.With(body=body):
            return _all_prepare(body)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            return _all_prepare(body, *(handler.body for handler in handlers), orelse, final)
    return False


def _acts(statement: ast.stmt) -> bool:
    """Whether ``statement`` is where the program begins, even if imports follow: the ranks are set up above it."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    func = statement.value.func
    return (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) in ACTING


def _all_prepare(*blocks: Sequence[ast.stmt]) -> bool:
    return all(_prepares(statement) for block in blocks for statement in block)


def _below_settings(tree: ast.Module, last: ast.stmt) -> ast.stmt:
    """The last of the ``os.environ`` settings right below ``last``, which libraries read when they are imported."""
    for statement in tree.body[tree.body.index(last) + 1 :]:
        if not _prepares(statement) or "environ" not in ast.dump(statement):
            break
        last = statement
    return last


def _roots(statement: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(statement, ast.Import):
        return {item.name.partition(".")[0] for item in statement.names}
    return set() if statement.level else {(statement.module or "").partition(".")[0]}


def _key(statement: ast.Import | ast.ImportFrom) -> tuple[bool, str]:
    if isinstance(statement, ast.Import):
        return False, statement.names[0].name
    return True, statement.module or ""
