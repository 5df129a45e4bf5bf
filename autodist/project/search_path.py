"""The folders that a script itself puts on its module path: `sys.path.append(os.path.dirname(__file__) + "/..")`."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autodist.source import Source, walk

SAME = frozenset(["abspath", "absolute", "expanduser", "normpath", "Path", "PurePath", "realpath", "resolve", "str"])
"""What names the same folder as before."""
NAMED = {"pardir": os.pardir, "curdir": os.curdir, "sep": "/"}


@dataclass(frozen=True)
class Addition:
    """An expression for a folder that a script puts on its module path."""

    node: ast.expr
    folders: tuple[Path, ...]
    """Which it may be: a relative one is looked for below each folder where the script may be started."""
    known: bool
    """Whether it follows from the text."""
    by_file: bool
    """Whether it is named from where the file lies (`__file__`)."""
    first: bool
    """Whether it comes before folders that are on the path already."""
    position: int | None
    """Where a call of `sys.path.insert` or `append` (-1) puts it."""


def added_folders(source: Source, starts: Sequence[Path]) -> Iterator[Path]:
    """The folders that ``source`` adds to ``sys.path``, as far as they follow from its text, if it is started there."""
    for each in additions(source, starts):
        yield from each.folders


def additions(source: Source, starts: Sequence[Path]) -> Iterator[Addition]:
    """All that ``source`` adds to ``sys.path``, started in one of these folders."""
    names = _bound_once(source.tree)
    adders = _adders(source.tree)
    other = Path(os.sep, *["other"] * len(Path(os.path.abspath(source.path)).parts), source.path.name)
    for node in walk(source.tree):
        for folder in _added(node, frozenset(adders)):
            if isinstance(folder, ast.Name) and folder.id in adders.values():
                continue  # the calls of the function say which
            values = [(start, _path(folder, source.path, start, names)) for start in starts]
            found = [os.path.normpath(start / value) for start, value in values if value is not None]
            places = tuple(Path(each) for each in dict.fromkeys(found) if os.path.isdir(each))
            by_file = values[0][1] != _path(folder, other, starts[0], names)
            yield Addition(folder, places, bool(found), by_file, _is_first(node), _position(node))


def _position(node: ast.AST) -> int | None:
    """Where the call puts a folder: -1 is the end."""
    if not isinstance(node, ast.Call) or _dotted(node.func) not in ("sys.path.append", "sys.path.insert"):
        return None
    if len(node.args) == 2 and isinstance(node.args[0], ast.Constant):
        index = node.args[0].value
        return index if isinstance(index, int) else None
    return -1


def _is_first(node: ast.AST) -> bool:
    """Whether a statement puts folders before others; of a function of the script that is not known."""
    if isinstance(node, ast.Call):
        return _dotted(node.func) not in ("sys.path.append", "sys.path.extend", "site.addsitedir")
    return isinstance(node, ast.Assign)


def _adders(tree: ast.Module) -> dict[str, str]:
    """The functions that add their first parameter to the path, with that."""
    return {
        function.name: function.args.args[0].arg
        for function in walk(tree)
        if isinstance(function, ast.FunctionDef) and function.args.args
        for node in walk(function)
        for folder in _added(node, frozenset())
        if isinstance(folder, ast.Name) and folder.id == function.args.args[0].arg
    }


def _added(node: ast.AST, adders: frozenset[str]) -> Iterator[ast.expr]:
    """The expressions that a statement adds to the path."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in adders and node.args:
        yield node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if _dotted(node.func) in ("sys.path.append", "sys.path.insert"):
            yield node.args[-1]
        elif _dotted(node.func) == "site.addsitedir":
            yield node.args[0]
    lists: list[ast.expr] = []
    if isinstance(node, ast.Call) and _dotted(node.func) == "sys.path.extend":
        lists = node.args
    elif isinstance(node, ast.AugAssign) and _dotted(node.target) == "sys.path":
        lists = [node.value]
    elif isinstance(node, ast.Assign) and any(_dotted(target) == "sys.path" for target in node.targets):
        lists = [node.value.left, node.value.right] if isinstance(node.value, ast.BinOp) else [node.value]
    for each in lists:
        if isinstance(each, (ast.List, ast.Tuple)):
            yield from (part.value if isinstance(part, ast.Starred) else part for part in each.elts)


def _dotted(node: ast.expr) -> str:
    """`sys.path.append`; nothing of what is no plain name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


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
