"""The folders that a script itself puts on its module path: `sys.path.append(os.path.dirname(__file__) + "/..")`."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from autodist.source import Source

SAME = frozenset(["abspath", "absolute", "expanduser", "normpath", "Path", "PurePath", "realpath", "resolve", "str"])
"""What names the same folder as before."""
NAMED = {"pardir": os.pardir, "curdir": os.curdir, "sep": "/"}


def added_folders(source: Source, start: Path) -> Iterator[Path]:
    """The folders that ``source`` adds to ``sys.path``, as far as they follow from its text.

    A relative one is looked for below ``start``, where the script is started.
    """
    names = _bound_once(source.tree)
    adders = _adders(source.tree)
    for node in ast.walk(source.tree):
        for folder in _added(node, adders):
            value = _path(folder, source.path, start, names)
            if value is not None and (start / value).is_dir():
                yield Path(os.path.normpath(start / value))


def _adders(tree: ast.Module) -> frozenset[str]:
    """The functions that add their first parameter to the path."""
    return frozenset(
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.args.args
        for node in ast.walk(function)
        for folder in _added(node, frozenset())
        if isinstance(folder, ast.Name) and folder.id == function.args.args[0].arg
    )


def _added(node: ast.AST, adders: frozenset[str]) -> Iterator[ast.expr]:
    """The expressions that a statement adds to the path."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in adders and node.args:
        yield node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if ast.unparse(node.func) in ("sys.path.append", "sys.path.insert"):
            yield node.args[-1]
        elif ast.unparse(node.func) == "site.addsitedir":
            yield node.args[0]
    lists: list[ast.expr] = []
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "sys.path.extend":
        lists = node.args
    elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "sys.path":
        lists = [node.value]
    elif isinstance(node, ast.Assign) and any(ast.unparse(target) == "sys.path" for target in node.targets):
        lists = [node.value.left, node.value.right] if isinstance(node.value, ast.BinOp) else [node.value]
    for each in lists:
        if isinstance(each, (ast.List, ast.Tuple)):
            yield from (part.value if isinstance(part, ast.Starred) else part for part in each.elts)


def _bound_once(tree: ast.Module) -> dict[str, ast.expr]:
    """What the names of the module stand for that one plain assignment binds."""
    found: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _path(node: ast.expr, file: Path, start: Path, names: Mapping[str, ast.expr]) -> str | None:
    """The path that an expression names; None where it does not follow from the text."""

    def path(inner: ast.expr) -> str | None:
        return _path(inner, file, start, names)

    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        if node.id == "__file__":
            return os.path.abspath(file)
        rest = {name: value for name, value in names.items() if name != node.id}
        return _path(names[node.id], file, start, rest) if node.id in names else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        parts = [path(node.left), path(node.right)]
        return _joined(parts, "/" if isinstance(node.op, ast.Div) else "")
    if isinstance(node, ast.Attribute) and node.attr in NAMED:
        return NAMED[node.attr]
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        folder = path(node.value)
        return None if folder is None else os.path.dirname(folder)
    if isinstance(node, ast.Subscript):
        return _above(node, path(node.value.value)) if isinstance(node.value, ast.Attribute) else None
    if isinstance(node, ast.Call):
        return _called(node, path, start)
    return None


def _joined(parts: list[str | None], separator: str) -> str | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return os.path.join(*known) if separator else "".join(known)


def _above(node: ast.Subscript, folder: str | None) -> str | None:
    """`Path(__file__).parents[1]`"""
    assert isinstance(node.value, ast.Attribute)
    if folder is None or node.value.attr != "parents" or not isinstance(node.slice, ast.Constant):
        return None
    parents = Path(folder).parents
    index = node.slice.value
    return str(parents[index]) if isinstance(index, int) and 0 <= index < len(parents) else None


def _called(node: ast.Call, path: Callable[[ast.expr], str | None], start: Path) -> str | None:
    """`os.path.join(...)`, `Path(...).resolve()`, `os.getcwd()`"""
    args = [path(arg) for arg in node.args]
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("getcwd", "cwd"):
        return str(start)
    if isinstance(node.func, ast.Attribute) and (not args or name == "joinpath"):
        args = [path(node.func.value), *args]
    if not args:
        return None
    if name == "dirname":
        return None if args[0] is None else os.path.dirname(args[0])
    if name in ("join", "joinpath", "Path", "PurePath"):
        return _joined(args, "/")
    return args[0] if name in SAME else None
