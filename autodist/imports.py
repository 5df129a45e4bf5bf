"""Names for modules and their members: those that a file has already, or a new import under a free name."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from autodist.edits import AddImport, Edit
from autodist.lossless import prelude
from autodist.source import Source, walk

_Import = ast.Import | ast.ImportFrom
Name = tuple[str, tuple[Edit, ...]]
"""An expression that can be used anywhere in the file, and the edits it needs."""
USUAL = {"torch": "torch", "nn": "torch.nn", "np": "numpy", "numpy": "numpy"}
"""What names mean that a file uses and does not bind: they come with `from model import *`."""


def below_imports(source: Source) -> ast.stmt:
    """The first statement below the imports at the top of a file: above it goes what the file defines anew."""
    return prelude.below(source.tree)


def is_preface(statement: ast.stmt) -> bool:
    """Whether a statement is an import, with what stands in where there is no such library, or a docstring."""
    return prelude.is_preface(statement)


REEXPORTED = {"torch.utils.data.distributed": "torch.utils.data"}
"""Modules whose members another one hands on: `from torch.utils.data import DistributedSampler`."""


class Importer:
    """Gives names in one file. A name means one thing in all of the file, or it is not given.

    Asking twice gives equal answers, and two questions never get one name for two things.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._given: dict[str, str] = {}

    def module(self, name: str, alias: str) -> Name:
        """The name of a module: one that the file imports already, else ``alias`` where that is free."""
        present = self._present_module(name)
        if present is not None:
            return present, ()
        if self._is_free(alias, name):
            return self._give(alias, name, AddImport(self._source.tree, name, None, None if alias == name else alias))
        return self._dotted(name) or self._renamed(name, alias, name, None)

    def name(self, module: str, name: str, alias: str | None = None) -> Name:
        """The name of a module's member: one that the file imports already, else ``alias`` or its own."""
        meaning = f"{module}.{name}"
        known = {meaning, f"{REEXPORTED.get(module, module)}.{name}"}
        for local, imported, _ in self._imported:
            if imported in known and self._is_free(local, imported):
                return local, ()
        present = self._present_module(module)
        if present is not None:
            return f"{present}.{name}", ()
        wanted = alias or name
        if self._is_free(wanted, meaning):
            edit = AddImport(self._source.tree, module, name, None if wanted == name else wanted)
            return self._give(wanted, meaning, edit)
        dotted = self._dotted(module)
        if dotted is not None:
            return f"{dotted[0]}.{name}", dotted[1]
        return self._renamed(meaning, wanted, module, name)

    def _present_module(self, name: str) -> str | None:
        """How the file can call the module already, by a name of its own rather than by its path."""
        for local, imported, _ in self._imported:
            if imported == name and self._is_free(local, name):
                return local
        root = name.partition(".")[0]
        paths = {path for _, _, path in self._imported}
        return name if name in paths and self._is_free(root, root) else None

    def _dotted(self, module: str) -> Name | None:
        root = module.partition(".")[0]
        if not self._is_free(root, root):
            return None
        self._given[root] = root
        return module, (AddImport(self._source.tree, module),)

    def _renamed(self, meaning: str, wanted: str, module: str, name: str | None) -> Name:
        """A name that nobody would choose, for a file that uses all the better ones for something else."""
        local = f"{module.partition('.')[0]}_{wanted}"
        while not self._is_free(local, meaning):
            local += "_"
        return self._give(local, meaning, AddImport(self._source.tree, module, name, local))

    def _give(self, local: str, meaning: str, edit: AddImport) -> Name:
        self._given[local] = meaning
        return local, (edit,)

    def _is_free(self, local: str, meaning: str) -> bool:
        """Whether ``local`` means this, or nothing yet, wherever it stands in the file."""
        return self._meanings.get(local, {meaning}) == {meaning} and self._given.get(local, meaning) == meaning

    @cached_property
    def _imported(self) -> list[tuple[str, str, str | None]]:
        """What the top of the file imports: the local name, what it means, and the path that ``import a.b`` opens."""
        return [binding for statement in prelude.imports(self._source.tree) for binding in _bindings(statement)]

    @cached_property
    def _meanings(self) -> dict[str, set[str | None]]:
        """What each name of the file may mean, in any scope: the paths of imports, and None for all else."""
        meanings: dict[str, set[str | None]] = defaultdict(set)
        loaded: set[str] = set()
        for node in walk(self._source.tree):
            if isinstance(node, _Import):
                for local, meaning, _ in _bindings(node):
                    meanings[local].add(meaning)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loaded.add(node.id)
            else:
                for local in _bound(node):
                    meanings[local].add(None)
        for local in loaded - meanings.keys() - set(dir(builtins)):
            meanings[local].add(USUAL.get(local))  # from a star import, perhaps
        return dict(meanings)


def _bindings(statement: _Import) -> Iterator[tuple[str, str, str | None]]:
    """The local names that an import binds, what each means, and the path that ``import a.b`` opens."""
    for item in statement.names:
        if isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            yield item.asname or item.name, f"{module}.{item.name}", None
        elif item.asname is not None:
            yield item.asname, item.name, None
        else:
            root = item.name.partition(".")[0]
            yield root, root, item.name


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that ``node`` by itself gives a meaning to, other than by an import."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case _ if type(node).__name__ in {"TypeVar", "ParamSpec", "TypeVarTuple"}:
            yield node.name  # type: ignore[attr-defined]
