"""Batches that have their parts by keys, and code that goes over these."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import TypeVar

from autodist.collation.frame import Frame
from autodist.collation.kinds import ANY_OTHER, Fields, Key, Kind, Rows
from autodist.collation.syntax import first_name, nodes_of
from autodist.source import last_name
from autodist.values import UNKNOWN

KEYS = 8
"""How many keys that a function names are looked at one by one."""


class Keyed(Frame):
    """What is under which key of a batch, and of each sample."""

    def _bind(self, target: ast.expr, kind: Kind) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = kind
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            if target.value.id == self._own():
                self.names[ast.unparse(target)] = kind
            else:
                self._set(target.value.id, ast.Constant(target.attr), kind)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._set(target.value.id, target.slice, kind)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, each in enumerate(target.elts):
                part = kind.at(index) if isinstance(kind, Fields) else kind
                self._bind(each.value if isinstance(each, ast.Starred) else each, part)

    def _set(self, name: str, key: ast.expr, kind: Kind) -> None:
        """`batch["words"] = words`."""
        held, told = self.names.get(name), self.constant(key)
        before = held if isinstance(held, Fields) else Fields({})
        if told == ANY_OTHER:
            self.names[name] = replace(before, rest=kind)
        elif isinstance(told, str):
            self.names[name] = replace(before, parts={**before.parts, told: kind})

    def _goes_by_key(self, node: ast.For) -> str | None:
        """What a loop calls the keys of a batch by which it goes: `for key in batch[0]: batch[key] = ...`."""
        name = first_name(node.target)
        kept = [each.targets[0] for each in nodes_of(node, ast.Assign)]
        grown = (each.func.value for each in nodes_of(node, ast.Call) if isinstance(each.func, ast.Attribute))
        kept += [each for each in grown if isinstance(each, ast.Subscript)]
        keys = [each.slice for each in kept if isinstance(each, ast.Subscript)]
        by_key = any(isinstance(each, ast.Name) and each.id == name for each in keys)
        return name if by_key and name is not None and self._holds_keys(node.iter) else None

    def _holds_keys(self, over: ast.expr) -> bool:
        """Whether a loop takes the keys of something, and no samples nor their numbers."""
        if isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "range"):
            return False
        if isinstance(over, ast.Call) and last_name(over.func) == "zip":
            return len(over.args) > 1 and not isinstance(self.kind(over.args[0]), Rows)
        return not isinstance(self.kind(over), Rows)

    def _by_key(self: Keyed_, name: str, target: ast.expr, over: ast.expr, code: list[ast.stmt]) -> Iterator[Keyed_]:
        """This reading, for each key by that ``name``: those that are written out, and any other."""
        if isinstance(over, ast.Call) and last_name(over.func) == "zip":  # `zip(KEYS, zip(*batch))`
            taken, over = [self.kind(each) for each in over.args[1:]], over.args[0]
        else:
            taken = [self.kind(over)]
        listed = self.constant(over)
        told = {each: None for each in listed if isinstance(each, str)} if isinstance(listed, tuple) else {}
        if not told:
            parts = [key for kind in taken if isinstance(kind, Fields) for key in kind.parts if isinstance(key, str)]
            told = {**dict.fromkeys(parts), **dict.fromkeys([*self._compared_to(code)][:KEYS]), ANY_OTHER: None}
        names = target.elts[1:] if isinstance(target, (ast.Tuple, ast.List)) else []
        before = self.constants.get(name, UNKNOWN)
        for key in told:
            self.constants[name] = key
            self.names.pop(name, None)
            for each, kind in zip(names, taken, strict=False):
                self._bind(each, kind.at(key) if isinstance(kind, Fields) else kind)
            yield self
        self.constants[name] = before

    def _compared_to(self, code: list[ast.stmt]) -> Iterator[str]:
        """The words that a function compares something to, or those that it calls."""
        called = (self._called(each.func) for statement in code for each in nodes_of(statement, ast.Call))
        for node in (self.function.node, *(each.node for each in called if each is not None)):
            for compared in nodes_of(node, ast.Compare):
                for each in (*nodes_of(compared.left, ast.Constant), *nodes_of(compared.comparators[0], ast.Constant)):
                    if isinstance(each.value, str):
                        yield each.value

    def each_key(self: Keyed_, node: ast.DictComp) -> Iterator[tuple[str, Keyed_]]:
        """How the value is read under each key of `{key: torch.stack([d[key] for d in batch]) for key in batch[0]}`."""
        generator = node.generators[0]
        name = first_name(generator.target)
        if len(node.generators) > 1 or name is None or ast.unparse(node.key) != name:
            return
        if not self._holds_keys(generator.iter):
            return
        inner = copy(self)
        inner.names, inner.constants = {**self.names}, {**self.constants}
        value: list[ast.stmt] = [ast.Expr(node.value)]
        for each in inner._by_key(name, generator.target, generator.iter, value):
            if not any(each.constant(test) is False for test in generator.ifs):
                yield str(each.constants[name]), each

    def _keyed(self, node: ast.DictComp) -> Kind:
        made: dict[Key, Kind] = {key: each.kind(node.value) for key, each in self.each_key(node)}
        rest = made.pop(ANY_OTHER, None)
        return Fields(made, rest) if made or rest is not None else None


Keyed_ = TypeVar("Keyed_", bound=Keyed)
