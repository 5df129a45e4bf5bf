"""Modules that a script imports by a name it puts together when it runs: `import_module("models." + args.model)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from autodist.source import Source, all_of, last_name, walk

MOST = 16
"""How many modules such a name may stand for: of more, those are followed which the texts of the script name."""
MODULES = re.compile(r"[A-Za-z_]\w*(\.\w+)*\.\w*\*[\w.*]*")
"""How a name of a module is put together, with ``*`` for what is not known."""

IMPORTING = ("import_module", "__import__")
"""What imports a module by its name."""
NAMING = (*IMPORTING, "locate")
"""What takes the name of a module, or of what is in one."""
TEMPLATES = (ast.BinOp, ast.JoinedStr, ast.Call)
"""What puts a text together."""


def patterns(source: Source) -> Iterator[tuple[str, ast.Call]]:
    """What a file imports by name, with ``*`` for the part that is not known, and where."""
    for node in _imports(source):
        pattern = pattern_of(node, source)
        if pattern is not None:
            yield pattern, node


def put_together(source: Source) -> Iterator[tuple[str, ast.Call]]:
    """What a file may import by a name of which nothing is written in the call: all names of modules that it puts
    together somewhere, as for a dict of them, `paths[name] = f"models.{name}"`."""
    calls = [node for node in _imports(source) if is_any_name(node) and pattern_of(node, source) is None]
    if calls:
        texts = (_template(each, known_texts(source)) for each in walk(source.tree) if isinstance(each, TEMPLATES))
        found = {text for text in texts if text is not None and MODULES.fullmatch(text)}
        yield from ((text, calls[0]) for text in sorted(found))


def _imports(source: Source) -> Iterator[ast.Call]:
    """The calls that import a module by its name."""
    for node in walk(source.tree):
        if isinstance(node, ast.Call) and last_name(node.func) in IMPORTING:
            yield node


def any_named(source: Source, folders: Iterable[Path]) -> list[tuple[str, ast.Call]]:
    """The modules that `import_module(args.model)` may mean, with where: one that the file names, as the default of an
    option, and those beside it that define what the file reads of it."""
    calls = [node for node in _imports(source) if is_any_name(node) and pattern_of(node, source) is None]
    if not calls:
        return []
    texts = {node.value for node in walk(source.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    read = {node.attr for node in all_of(source.tree, ast.Attribute)}
    for folder in folders:
        defined = {path.stem: _defined(path) & read for path in folder.glob("*.py") if path.stem.isidentifier()}
        for default in sorted(texts & defined.keys()):
            alike = sorted(name for name, names in defined.items() if defined[default] and names >= defined[default])
            if 0 < len(alike) <= MOST:
                return [(name, calls[0]) for name in alike]
    return []


def is_any_name(call: ast.Call) -> bool:
    """Whether nothing is written of the name of the module that is imported."""
    given = call.args[:1]
    return len(call.args) == 1 and not call.keywords and isinstance(given[0], (ast.Name, ast.Attribute, ast.Subscript))


def imported(call: ast.Call, told: object, source: Source, modules: Iterable[str], chosen: Iterable[str]) -> list[str]:
    """The modules that an import by name may mean, where it is ``told`` the name, or not: of those of the project, and
    those ``chosen`` by names that nobody has put together."""
    pattern = told if isinstance(told, str) else pattern_of(call, source)
    found = matching(pattern, modules) if pattern is not None else sorted(chosen) if is_any_name(call) else []
    return found or ([told] if isinstance(told, str) and not told.startswith(".") else [])


def _defined(path: Path) -> set[str]:
    """The classes and functions of a module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    return {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


@lru_cache(maxsize=64)
def known_texts(source: Source) -> Mapping[str, str]:
    """The variables of a file that are bound once, to a text: as far as that is written, with ``*`` for the rest."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in walk(source.tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            bound.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.Name) and _is_store(node):
            bound.setdefault(node.id, []).append(None)
        elif isinstance(node, ast.arg):
            bound.setdefault(node.arg, []).append(None)
    once = {name: given[0] for name, given in bound.items() if len(given) == 2 and given[0] is not None}
    package = source.module if source.path.name == "__init__.py" else source.module.rpartition(".")[0]
    own = {"__name__": source.module, "__package__": package}
    texts = {name: _template(value, own) for name, value in once.items()}
    return own | {name: text for name, text in texts.items() if text is not None}


def pattern_of(call: ast.Call, source: Source) -> str | None:
    """The name of the module that is imported, as far as it is written in the call, or in what its variable is."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
    text = _template(given[0], known_texts(source)) if given else None
    if text is None:
        return None
    if text.startswith("."):
        package = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "package")]
        home = _template(package[0], known_texts(source)) if package else None
        if home is None or "*" in home or text.startswith(".."):
            return None
        text = home + text
    start, *unknown = text.split("*")
    return text if not unknown or "." in start else None  # any module at all


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The modules that an import by name may mean: each ``*`` stands for a name, or the rest of one."""
    if "*" not in pattern:
        return [name for name in names if name == pattern]
    return sorted(name for name in names if _stars(pattern).fullmatch(name))


def _stars(pattern: str) -> re.Pattern[str]:
    return re.compile("([^.]*)".join(map(re.escape, pattern.split("*"))))


def spelt(pattern: str, names: Iterable[str], texts: Collection[str]) -> list[str]:
    """Of many modules that an import by name may mean, those whose unknown parts are texts of the script: the default
    of an option, or what is compared with it."""
    matches = ((name, _stars(pattern).fullmatch(name)) for name in names)
    return [name for name, found in matches if found is not None and all(part in texts for part in found.groups())]


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
                bound = any(isinstance(n, ast.Name) and n.id == text.id and _is_store(n) for n in walk(outer))
                return names if len(names) == len(listed.elts) and not bound else []
        inner = outer
    return []


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def files(pattern: str, root: Path) -> list[str]:
    """The modules below a folder that an import by name may mean."""
    if "*" not in pattern:
        return [pattern]
    paths = (path.relative_to(root).with_suffix("") for path in root.glob(pattern.replace(".", "/") + ".py"))
    names = [".".join(path.parts) for path in paths if path.name != "__init__"]
    return matching(pattern, [name for name in names if all(part.isidentifier() for part in name.split("."))])


def with_packages(names: list[str]) -> list[str]:
    """Modules, after the packages that they are in."""
    return [*sorted({name.rpartition(".")[0] for name in names if "." in name}), *names]


def template(node: ast.expr, source: Source) -> str | None:
    """A text as far as a file writes it, with ``*`` for what is put into it."""
    return _template(node, known_texts(source))


def _template(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """A text as far as it is written, with ``*`` for what is put into it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(each, known) or "*" for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return _template(node.value, known)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_template(side, known) for side in (node.left, node.right)]
        return "".join("*" if side is None else side for side in sides) if any(sides) else None
    text, marks = None, ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text, marks = node.left, r"%[^a-zA-Z]*[a-zA-Z]"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text, marks = node.func.value, r"\{[^}]*\}"
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return re.sub(marks, "*", text.value)
    return None
