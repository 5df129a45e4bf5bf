"""What changes in the files of a project that are written to another folder: they import each other, and never the
originals, wherever the script is started, whatever is installed, and without PYTHONPATH."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autodist.project import Addition, Project, absolute, additions, starts
from autodist.source import Source

OWN = "os.path.dirname(os.path.abspath(__file__))"
REASON = "# import the modules of this folder, not the originals, which may be installed or on PYTHONPATH"
AS_MODULE = "# as `python -m` does: import from the folder that holds this package"
RELATIVE = re.compile(rb"from\s*\.(?:[.\s]*\.)?\s*(?!import\b)[\w.]*")


@dataclass(frozen=True)
class _Change:
    """Bytes of a file, from ``start`` to ``end``, that become ``new``."""

    start: int
    end: int
    new: str


class _Text:
    """A file's text after its conversion, and where its nodes stand in it."""

    def __init__(self, source: Source, text: str) -> None:
        self.source = replace(source, text=text, tree=ast.parse(text))
        self.data = text.encode()
        self.newline = "\r\n" if b"\r\n" in self.data else "\n"
        lines = self.data.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def line(self, node: ast.stmt) -> int:
        """Where the line of a statement begins, its decorators included."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        return self._starts[min([node.lineno, *(each.lineno for each in decorators)]) - 1]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[node.end_lineno - 1] + node.end_col_offset

    def changed(self, changes: list[_Change]) -> str:
        """The text with all changes."""
        data = self.data
        for each in sorted(changes, key=lambda each: each.start, reverse=True):
            data = data[: each.start] + each.new.replace("\n", self.newline).encode() + data[each.end :]
        return data.decode()


def relocated(project: Project, source: Source, text: str) -> str:
    """The text of one of the project's files, for its place in another folder with the project's layout."""
    where = _Text(source, text)
    changes = (
        _in_entry(project, where) if source is project.entry else _elsewhere(project, where, where.source.tree.body)
    )
    return where.changed(changes) if changes else text


def unread(project: Project) -> Iterator[tuple[Source, int, str]]:
    """The statements that put a folder in front on the module path of which the text does not say which one it is: it
    may be that of the originals."""
    for source in project.sources:
        begun = _first_import(project, source.tree) if source is project.entry else None
        early = source.tree.body[:begun]
        for each in additions(source, starts(project.entry.path)):
            settled = source is project.entry and any(each.node is node for top in early for node in ast.walk(top))
            if not each.known and each.first and not settled and project.modules:
                yield source, each.node.lineno, ast.unparse(each.node)


def _in_entry(project: Project, where: _Text) -> list[_Change]:
    """The entry puts the folders of the converted modules in front, just before it imports the first of them."""
    body = where.source.tree.body
    first = _first_import(project, where.source.tree)
    own = Path(os.path.abspath(project.entry.path.parent))
    changes = _elsewhere(project, where, body[first:])
    if project.module is not None:
        changes += [_Change(*each) for each in _as_absolute(project, where)]
        first = _first_statement(where.source.tree)
        changes += [_removal(where, node) for node in body[first:] if _imports_only(node, ("os", "sys"))]
        package = [f'__package__ = "{project.package}"'] if "__package__" in where.source.text else []
        lines = [AS_MODULE, f"sys.path[0] = {_from(own, _import_folders(project)[0])}", *package]
        return [*changes, _insertion(where, first, lines)]
    ahead = any(each.first and not each.by_file for each in additions(where.source, starts(project.entry.path)))
    wanted = [each for each in _import_folders(project) if each != own or ahead]
    lines = []
    for folder in reversed(wanted):  # the last one to be put in front comes first
        line = f"sys.path.insert(0, {_from(own, folder)})"
        statement = _statement(where.source, body[:first], folder, project)
        if statement is None:
            lines.append(line)
        elif not (statement[1].by_file and statement[1].position == 0):
            begin, end = where.span(statement[0])
            missing = "".join(f"import {name}\n" for name in _missing(body, body.index(statement[0])))
            changes.append(_Change(begin, end, f"{missing}{REASON}\n{line}"))
    return [*changes, _insertion(where, first, [REASON, *lines])] if lines else changes


def _insertion(where: _Text, index: int, lines: list[str]) -> _Change:
    """Lines before a statement of the file, with the imports that they need."""
    body = where.source.tree.body
    imports = [f"import {name}\n" for name in _missing(body, index)]
    at = where.line(body[index]) if index < len(body) else len(where.data)
    apart = "\n" if imports else ""
    return _Change(at, at, "".join([*imports, apart, *(f"{line}\n" for line in lines), apart]))


def _imports_only(node: ast.stmt, names: tuple[str, ...]) -> bool:
    alone = isinstance(node, ast.Import) and len(node.names) == 1 and node.names[0].asname is None
    return alone and node.names[0].name in names  # type: ignore[attr-defined]


def _removal(where: _Text, node: ast.stmt) -> _Change:
    """Without the line of an import that now stands further up."""
    begin, end = where.line(node), where.span(node)[1]
    alone = where.data[begin:end].strip() == where.data[slice(*where.span(node))]
    ends = where.data.find(b"\n", end) + 1
    return _Change(begin, ends, "") if alone and not where.data[end:ends].strip() else _Change(end, end, "")


def _missing(body: list[ast.stmt], index: int) -> list[str]:
    """Which of `os` and `sys` the statements before do not import."""
    known = {
        alias.name
        for node in body[:index]
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname is None
    }
    return [name for name in ("os", "sys") if name not in known]


def _elsewhere(project: Project, where: _Text, body: list[ast.stmt]) -> list[_Change]:
    """Folders that statements name from where the script is started, or in full, become those of converted files."""
    inside = {id(node) for top in body for node in ast.walk(top)}
    own = Path(os.path.abspath(where.source.path.parent))
    changes = []
    for each in additions(where.source, starts(project.entry.path)):
        if id(each.node) in inside and not each.by_file and (folder := _target(project, each)) is not None:
            changes.append(_Change(*where.span(each.node), _from(own, folder)))
    if changes and (
        missing := [name for name in _missing(where.source.tree.body, len(where.source.tree.body)) if name == "os"]
    ):
        at = where.line(where.source.tree.body[_first_statement(where.source.tree)])
        changes.append(_Change(at, at, "".join(f"import {name}\n" for name in missing)))
    return changes


def _as_absolute(project: Project, where: _Text) -> Iterator[tuple[int, int, str]]:
    """`from .models import Net` as `from package.models import Net`: what is started by its path has no package."""
    for node in ast.walk(where.source.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            begin, end = where.span(node)
            found = RELATIVE.match(where.data, begin, end)
            if found is not None:
                spaced = "" if where.data[found.end() : found.end() + 1].isspace() else " "
                yield begin, found.end(), f"from {absolute(node, project.package)}{spaced}"


def _import_folders(project: Project) -> list[Path]:
    """The folders below which the project's modules lie by their names; that of the package comes first."""
    first = [Path(os.path.abspath(project.root))] if project.module is not None else []
    return list(dict.fromkeys([*first, *project.import_folders()]))


def _target(project: Project, addition: Addition) -> Path | None:
    """The folder of the project's modules that a statement puts on the path."""
    folders = _import_folders(project)
    return next((each for each in (Path(os.path.abspath(each)) for each in addition.folders) if each in folders), None)


def _from(folder: Path, other: Path) -> str:
    """How a file in one folder names another folder."""
    way = os.path.relpath(other, folder).replace(os.sep, "/")
    return OWN if way == "." else f'os.path.abspath(os.path.join(os.path.dirname(__file__), "{way}"))'


def _first_statement(tree: ast.Module) -> int:
    """The first statement after the docstring and what must come before all others."""
    for index, node in enumerate(tree.body):
        is_text = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return index
    return len(tree.body)


def _first_import(project: Project, tree: ast.Module) -> int:
    """The first statement with the import of a module of the project in it, or else the first after all imports."""
    last = _first_statement(tree)
    for index, statement in enumerate(tree.body):
        if any(_is_local(project, node) for node in ast.walk(statement)):
            return index
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            last = index + 1
    return last


def _is_local(project: Project, node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(name.partition(".")[0] in _tops(project) for name in (alias.name for alias in node.names))
    if isinstance(node, ast.ImportFrom):
        return bool(node.level) or (node.module or "").partition(".")[0] in _tops(project)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, (ast.Attribute, ast.Name)) and ast.unparse(called).endswith(
        ("import_module", "__import__")
    )


def _tops(project: Project) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in project.modules)


def _statement(
    source: Source, body: list[ast.stmt], folder: Path, project: Project
) -> tuple[ast.stmt, Addition] | None:
    """The last statement by itself that puts ``folder`` on the path."""
    found = None
    for each in additions(source, starts(project.entry.path)):
        for statement in body:
            alone = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            if (
                alone
                and each.position is not None
                and _target(project, each) == folder
                and each.node in _args(statement)
            ):
                found = statement, each
    return found


def _args(statement: ast.stmt) -> list[ast.expr]:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call.args if isinstance(call, ast.Call) else []
