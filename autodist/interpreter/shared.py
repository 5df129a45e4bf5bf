"""Names that share their numbers: arguments, views, items of lists. What is written into one is in the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from autodist.interpreter.evaluation import Evaluation
from autodist.interpreter.questions import last_part
from autodist.interpreter.words import FILLING
from autodist.source import Source, all_of, indices, last_name, walk
from autodist.tensors import number_of
from autodist.values import UNKNOWN, Items, Object, Scope, Table, Thing, Value, Viewer

VIEWS = frozenset(
    "view reshape flatten ravel numpy detach t transpose permute squeeze unsqueeze diagonal narrow".split()
)
DEPTH = 6
Holder = tuple[Any, Any]
"""What holds a value, and by which name, key or place."""
Site_ = tuple[Source, ast.expr]


class Shared(Evaluation):
    """What else holds what a name stands for."""

    def _holders(self, node: ast.expr, scope: Scope, depth: int = DEPTH) -> list[Holder]:
        """Where a name, an attribute or an entry is held, or that of which it is an item or a view: `counts` of
        `counts[label]`; also that which it shares its numbers with."""
        while (inner := self._viewed(node)) is not None:
            node = inner
        if isinstance(node, ast.Name):
            home = scope.find(node.id)
            if home is None:
                return []
            elsewhere = self._holders(*home.shared[node.id], depth - 1) if depth and node.id in home.shared else []
            found = [(home.names, node.id), *elsewhere, *self._held_elsewhere(home, node.id, depth)]
            return [*{(id(names), name): (names, name) for names, name in found}.values()]
        if isinstance(node, ast.Subscript):
            return list(self._entries(node))
        if not isinstance(node, ast.Attribute):
            return []
        owners = (t for t in self._lately(node.value).things if isinstance(t, Object) and "module" not in t.roles)
        return [(owner.attributes, node.attr) for owner in owners if node.attr in owner.attributes]

    def _held_elsewhere(self, home: Scope, name: str, depth: int) -> Iterator[Holder]:
        """What has been made to share the numbers of a name, and what that shares them with in turn."""
        for viewer in self._viewers(home, name):
            yield viewer.holder, viewer.key
            if viewer.made is not None and depth:
                yield from self._held_elsewhere(home, viewer.key, depth - 1)

    def _viewers(self, home: Scope, name: str) -> Iterator[Viewer]:
        """What shares the numbers of a name still, and has not been bound to others since."""
        for viewer in home.viewers.get(name, {}).values():
            if viewer.made is None:
                held = viewer.holder if isinstance(viewer.holder, dict) else dict(enumerate(viewer.holder))
                if viewer.key in held and held[viewer.key] == home.names.get(name):
                    yield viewer
            elif viewer.holder is home.names and home.shared.get(viewer.key, (None,))[0] is viewer.made:
                yield viewer

    def _note_viewer(self, part: ast.expr, viewer: Viewer, scope: Scope) -> None:
        """Note that something shares from here on what a name holds: `{"counts": counts}`."""
        while (inner := self._viewed(part)) is not None:
            part = inner
        home = scope.find(part.id) if isinstance(part, ast.Name) else None
        if home is None or not isinstance(part, ast.Name) or not may_share(home.names[part.id]):
            return
        home.viewers.setdefault(part.id, {})[id(viewer.holder), viewer.key] = viewer

    def _viewed(self, node: ast.expr) -> ast.expr | None:
        """What an item or a view shares its numbers with: `counts` of `counts[label]`, `counts.view(-1)`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            inner = node.func.value
        elif isinstance(node, ast.Subscript) or isinstance(node, ast.Attribute) and node.attr in ("data", "T", "mT"):
            inner = node.value
        else:
            return None
        held = any(isinstance(each, (Items, Table, Object)) for each in self._lately(inner).things)
        return None if held else inner

    def _entries(self, node: ast.Subscript) -> Iterator[Holder]:
        """The entries of dicts and lists that an item may be."""
        key = self._lately(node.slice).const if number_of(node.slice) is None else number_of(node.slice)
        for thing in self._lately(node.value).things:
            if isinstance(thing, Table):
                known = isinstance(key, (str, int)) and key in thing.entries
                yield (thing.entries, key) if known else (vars(thing), "element")
            elif isinstance(thing, Items):
                known = isinstance(key, int) and -len(thing.parts) <= key < len(thing.parts)
                yield from ((thing.parts, key),) if known else ((thing.parts, at) for at in range(len(thing.parts)))
                if not known:
                    yield vars(thing), "element"

    def _share(self, target: ast.expr, made: ast.expr, scope: Scope) -> None:
        """Note what a name that has just been bound shares its numbers with: `row = counts[0]`, `hits, n = sums`."""
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: list[ast.expr] = made.elts if isinstance(made, (ast.Tuple, ast.List)) else []
            if isinstance(made, (ast.Name, ast.Attribute, ast.Subscript)):
                parts = [ast.Subscript(made, ast.Constant(index), ast.Load()) for index in range(len(target.elts))]
            for part, one in zip(target.elts, parts, strict=False):
                self._share(part, one, scope)
            return
        plain = isinstance(made, (ast.Name, ast.Attribute, ast.Subscript)) or self._viewed(made) is not None
        if not plain or not isinstance(target, ast.Name):
            return
        home = scope.find(target.id)
        if home is not None and may_share(home.names[target.id]) and not _names(made, target.id):
            home.shared[target.id] = made, scope
            self._note_viewer(made, Viewer(home.names, target.id, made), scope)

    def _share_items(self, target: ast.expr, over: ast.expr, scope: Scope) -> None:
        """The same of what a loop goes through: `for row in counts`, `for name, row in zip(names, counts)`."""
        name = last_part(over.func) if isinstance(over, ast.Call) else ""
        if isinstance(over, ast.Call) and name in ("enumerate", "zip") and isinstance(target, (ast.Tuple, ast.List)):
            parts = target.elts[name == "enumerate" :]
            for part, each in zip(parts, over.args, strict=False):
                self._share_items(part, each, scope)
        elif isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and name in ("values", "items"):
            part = target.elts[-1] if isinstance(target, ast.Tuple) and name == "items" else target
            self._share(part, ast.Subscript(over.func.value, ast.Constant(None), ast.Load()), scope)
        elif isinstance(over, (ast.Name, ast.Attribute, ast.Subscript)):
            self._share(target, ast.Subscript(over, ast.Constant(None), ast.Load()), scope)

    def _is_shared_array(self, target: ast.expr, scope: Scope) -> bool:
        """Whether `x += y` changes what other names stand for, too."""
        home = scope.find(target.id) if isinstance(target, ast.Name) else None
        if home is None or not isinstance(target, ast.Name):
            return False
        shares = target.id in home.shared or any(self._viewers(home, target.id))
        return shares and self._is_array(target, scope)

    def _is_array(self, node: ast.expr, scope: Scope, axes: int = 1, depth: int = DEPTH) -> bool:
        """Whether it is known to be an array or tensor with so many axes: of those, `x += y` changes all that share
        its numbers, as it does not with a number."""
        if depth == 0:
            return False
        home = scope.find(node.id) if isinstance(node, ast.Name) else None
        if home is not None and isinstance(node, ast.Name) and node.id in home.shared:
            return self._is_array(*home.shared[node.id], axes, depth - 1)
        inner = self._viewed(node)
        if inner is not None and isinstance(node, ast.Subscript):
            taken = sum(not isinstance(each, ast.Slice) for each in indices(node))
            return self._is_array(inner, scope, axes + taken, depth - 1)
        if inner is not None:
            return self._is_array(inner, scope, 1, depth - 1)
        if isinstance(node, ast.Subscript):  # an entry of a dict or list
            written = [call for thing in self._lately(node.value).things for call in _written(thing, node.slice)]
            return any(last_name(each.func) in FILLING and _axes(each) >= axes for each in written)
        tree = scope.source.tree if isinstance(node, ast.Attribute) else scope.source.home(node)
        bound = all_of(tree, ast.Assign)
        named = (each.value for each in bound if ast.unparse(node) in map(ast.unparse, each.targets))
        calls = (each for value in named for each in all_of(value, ast.Call))
        return any(last_name(each.func) in FILLING and _axes(each) >= axes for each in calls)


def _written(thing: Thing, key: ast.expr) -> Iterator[ast.Call]:
    """The call that a dict is written with under a key: `np.ones(3)` of `{"hits": np.ones(3)}`."""
    made = thing.node if isinstance(thing, Table) else None
    for name, value in zip(made.keys, made.values, strict=True) if isinstance(made, ast.Dict) else ():
        if name is not None and isinstance(value, ast.Call) and ast.unparse(name) == ast.unparse(key):
            yield value


def may_share(value: Value) -> bool:
    """Whether it may be an array that something is counted in, rather than what a model computes."""
    return not value.things and value.const is UNKNOWN


def _axes(call: ast.Call) -> int:
    """How many axes a tensor is made with."""
    shape = call.args[0] if call.args else None
    if isinstance(shape, (ast.Tuple, ast.List)):
        return len(shape.elts)
    return len(call.args) if last_name(call.func) not in ("full", "full_like") else 1


def _names(node: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in walk(node))
