"""The function that is read, and what is known of it before it runs."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from autodist.collation.functions import BEGINNING, called, declared, methods_of, parameters_of, settings_of
from autodist.collation.kinds import Fields, Key, Kind, worst
from autodist.source import last_name
from autodist.values import NOTHING, UNKNOWN, Function, Object, Value

Callable_ = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Attribute


class Frame(ABC):
    """The function that is read, what its names stand for, and what is known of them beforehand."""

    def __init__(self, function: Function, names: dict[str, Kind], depth: int = 3) -> None:
        self.function = function
        self.names = names
        self.returned: list[Kind] = []
        self.constants = settings_of(function)
        """What parameters stand for that are told once and for all."""
        self._depth = depth
        self._choosing = 0
        self._one_row: set[str] = set()
        self._held: dict[str, str] = {}
        """What a loop takes one after the other, and what it takes them of."""
        self._sample: set[str] = set()
        """What a loop over the samples takes, and what it makes of each of them."""
        self._filled: set[str] = set()
        """The keys of samples under which they have what was filled up to the longest."""
        self._descending: set[str] = set()
        """What holds the samples, or something of each, from the longest to the shortest."""
        self._local: dict[str, Callable_] = {}
        """Functions that are defined within the function, and other names of those of libraries."""

    def given(self, kinds: list[Kind], named: Mapping[str, Kind] | None = None) -> Kind:
        """What the function returns for its arguments, those by position and those by name; of a class, what the
        object that it makes has under which names."""
        self.names |= {**dict(zip(self.parameters(), kinds, strict=False)), **(named or {})}
        kind = self._given(self.function.node, [])
        return self.made() if self.function.name == BEGINNING else kind

    def made(self) -> Fields:
        """What the object has that the function begins."""
        own = f"{self._own()}."
        return Fields({name.removeprefix(own): kind for name, kind in self.names.items() if name.startswith(own)})

    def parameters(self) -> list[str]:
        """What a call gives the function by position, without the object of a method and what `partial` has given."""
        return parameters_of(self.function.node)[(self._own() is not None) + len(self.function.args) :]

    def _own(self) -> str | None:
        """What a method calls its object."""
        static = any(last_name(each) == "staticmethod" for each in getattr(self.function.node, "decorator_list", ()))
        names = parameters_of(self.function.node)
        return names[0] if self.function.defined_in is not None and not static and names else None

    def _given(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, kinds: list[Kind]) -> Kind:
        self.names |= dict(zip(parameters_of(node), kinds, strict=False))
        if isinstance(node, ast.Lambda):
            return self.kind(node.body)
        self.run(node.body)
        return worst(self.returned)

    @abstractmethod
    def run(self, body: Iterable[ast.stmt]) -> bool:
        """Follow what names stand for; whether the function goes on after that."""

    @abstractmethod
    def kind(self, node: ast.expr) -> Kind:
        """What an expression has to do with the samples."""

    def constant(self, node: ast.expr) -> object:
        """What a name, a setting of the object or a literal stands for, UNKNOWN if it may be anything."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            inner = self.constant(node.operand)
            if isinstance(node.op, ast.Not):
                return inner if inner is UNKNOWN else not inner
            return -inner if isinstance(inner, int) else UNKNOWN
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node.left, node.ops[0], node.comparators[0])
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            held = [self.constant(each) for each in node.elts]
            return UNKNOWN if UNKNOWN in held else tuple(held)
        if isinstance(node, ast.Name):
            if node.id in self.constants:
                return self.constants[node.id]
            scope = self.function.scope.find(node.id) if node.id not in self.names else None
            return scope.names[node.id].const if scope is not None else UNKNOWN
        owner = self.function.owner
        if isinstance(node, ast.Attribute) and isinstance(owner, Object) and ast.unparse(node.value) == self._own():
            return owner.attributes.get(node.attr, NOTHING).const
        return UNKNOWN

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> object:
        """Whether a comparison of the name of a field holds: `key == "label"`, `key in ("words", "tags")`."""
        one, other = self.constant(left), self.constant(right)
        if not isinstance(one, str) or not isinstance(other, (str, tuple)):
            return UNKNOWN
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return (one == other) is isinstance(op, ast.Eq)
        return (one in other) is isinstance(op, ast.In) if isinstance(op, (ast.In, ast.NotIn)) else UNKNOWN

    def within(self, inner: Frame_, call: ast.Call) -> Frame_:
        """The reading of a function that a call runs, with the constants that this gives it."""
        if any(isinstance(each, ast.Starred) for each in call.args):
            return inner
        told = [*zip(inner.parameters(), call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        inner.constants |= {name: self.constant(each) for name, each in told if name is not None}
        return inner

    def fields_of(self, call: ast.Call) -> dict[Key, ast.expr]:
        """What an object is made of that has its fields by names, and by numbers if it is a tuple as well:
        `Batch(texts, labels)`."""
        scope = self.function.scope.find(call.func.id) if isinstance(call.func, ast.Name) else None
        made = scope.names[call.func.id].things if scope is not None and isinstance(call.func, ast.Name) else ()
        thing = next(iter(made)) if len(made) == 1 else None
        names, is_tuple = declared(thing)
        if not names and not call.args and self._holds_by_name(call):
            return {each.arg: each.value for each in call.keywords if each.arg is not None}
        if not names or any(isinstance(each, ast.Starred) for each in call.args):
            return {}
        given: dict[Key, ast.expr] = dict(zip(names, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg in names}
        numbered: dict[Key, ast.expr] = {at: given[name] for at, name in enumerate(names) if name in given}
        return {**numbered, **given} if is_tuple else given

    def _holds_by_name(self, call: ast.Call) -> bool:
        """`dict(texts=texts)`, `SimpleNamespace(texts=texts)`: what code of a library keeps under its own name."""
        name = last_name(call.func)
        return bool(call.keywords) and self._called(call.func) is None and (name == "dict" or name[:1].isupper())

    def _called(self, node: ast.expr) -> Function | None:
        """The function of the project that a call runs."""
        found: Value | None = None
        if isinstance(node, ast.Name):
            scope = self.function.scope.find(node.id)
            found = scope.names[node.id] if scope is not None else None
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            cls, owner = self.function.defined_in, self.function.owner
            bound = methods_of(cls, node.attr) if cls is not None else ()
            found = Value(frozenset(replace(each, owner=owner) for each in bound))
        functions = list(called(found)) if found is not None and self._depth else []
        return functions[0] if len(functions) == 1 else None


Frame_ = TypeVar("Frame_", bound=Frame)
