"""Modules that a script imports by a name it puts together when it runs: `import_module("models." + args.model)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from autodist.source import last_name

MOST = 12
"""How many modules such a name may stand for: of more, the right one is not among those that are worth following."""


def patterns(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a file imports by name, with ``*`` for the part that is not known, and the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("import_module", "__import__"):
            pattern = pattern_of(node)
            if pattern is not None:
                yield pattern, node.lineno


def any_named(tree: ast.Module, folders: Iterable[Path]) -> list[tuple[str, int]]:
    """The modules that `import_module(args.model)` may mean, with its line: one that the file names, as the default of
    an option, and those beside it that define what the file reads of it."""
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and last_name(node.func) == "import_module" and is_any_name(node)
    ]
    if not lines:
        return []
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for folder in folders:
        defined = {path.stem: _defined(path) & read for path in folder.glob("*.py") if path.stem.isidentifier()}
        for default in sorted(texts & defined.keys()):
            alike = sorted(name for name, names in defined.items() if defined[default] and names >= defined[default])
            if 0 < len(alike) <= MOST:
                return [(name, lines[0]) for name in alike]
    return []


def is_any_name(call: ast.Call) -> bool:
    """Whether nothing is written of the name of the module that is imported."""
    given = call.args[:1]
    return len(call.args) == 1 and not call.keywords and isinstance(given[0], (ast.Name, ast.Attribute, ast.Subscript))


def _defined(path: Path) -> set[str]:
    """The classes and functions of a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    return {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def pattern_of(call: ast.Call) -> str | None:
    """The name of the module that is imported, as far as it is written in the call."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
    text = _template(given[0]) if given else None
    if text is None:
        return None
    if text.startswith("."):
        package = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "package")]
        home = package[0].value if package and isinstance(package[0], ast.Constant) else None
        if not isinstance(home, str) or text.startswith(".."):
            return None
        text = home + text
    start, *unknown = text.split("*")
    return text if not unknown or "." in start else None  # any module at all


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The modules that an import by name may mean: each ``*`` stands for a name, or the rest of one."""
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    stars = re.compile("[^.]*".join(map(re.escape, pattern.split("*"))))
    found = [name for name in names if stars.fullmatch(name)]
    return sorted(found) if len(found) <= MOST else []


def among(node: ast.AST, text: ast.expr, around: Iterable[ast.AST]) -> list[str]:
    """What a text can be where ``node`` runs: `if name in ["LSTM", "GRU"]: self.rnn = getattr(nn, name)(...)`."""
    if not isinstance(text, ast.Name):
        return []
    inner = node
    for outer in around:
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(outer, ast.If) and inner in outer.body and isinstance(test := outer.test, ast.Compare):
            listed = test.comparators[0]
            asked = isinstance(test.left, ast.Name) and test.left.id == text.id and len(test.ops) == 1
            if asked and isinstance(test.ops[0], ast.In) and isinstance(listed, (ast.List, ast.Tuple, ast.Set)):
                given = [each.value for each in listed.elts if isinstance(each, ast.Constant)]
                names = [each for each in given if isinstance(each, str)]
                bound = any(isinstance(n, ast.Name) and n.id == text.id and _is_store(n) for n in ast.walk(outer))
                return names if len(names) == len(listed.elts) and not bound else []
        inner = outer
    return []


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def files(pattern: str, root: Path) -> list[str]:
    """The modules below a folder that an import by name may mean, after the packages that they are in."""
    if "*" not in pattern:
        return [pattern]
    paths = (path.relative_to(root).with_suffix("") for path in root.glob(pattern.replace(".", "/") + ".py"))
    names = [".".join(path.parts) for path in paths if path.name != "__init__"]
    found = matching(pattern, [name for name in names if all(part.isidentifier() for part in name.split("."))])
    return [*sorted({name.rpartition(".")[0] for name in found}), *found]


def _template(node: ast.expr) -> str | None:
    """A text as far as it is written, with ``*`` for what is put into it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "*" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_template(side) for side in (node.left, node.right)]
        return "".join("*" if side is None else side for side in sides) if any(sides) else None
    text, marks = None, ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text, marks = node.left, r"%[^a-zA-Z]*[a-zA-Z]"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text, marks = node.func.value, r"\{[^}]*\}"
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return re.sub(marks, "*", text.value)
    return None
