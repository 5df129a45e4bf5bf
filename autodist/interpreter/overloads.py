"""What operators, texts and `with` call of a class of the project: `__add__`, `__str__`, `__enter__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter.machine import Machine
from autodist.interpreter.questions import in_order, stable_order
from autodist.source import walk
from autodist.values import Function, Object, Scope, Stream, Value, union

OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.BitOr: "or",
    ast.BitAnd: "and",
    ast.MatMult: "matmul",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
TEXTS = ("__format__", "__str__", "__repr__")
"""What an object is shown by."""


class Overloads(Machine):
    """Methods that no call names."""

    def _overloaded(
        self, operator: ast.operator, left: Value, right: Value, scope: Scope, within: bool = False
    ) -> Value | None:
        """`stats + Stats(loss, n)`, or, ``within`` an object, `stats += loss`, where a class says what that is."""
        name = OPERATORS.get(type(operator))
        if name is None or not (left.things or right.things):
            return None
        results: list[Value] = []
        for thing in _plain_objects(left):
            method = next((m for m in (f"__i{name}__",) * within + (f"__{name}__",) if thing.functions(m)), None)
            if method is not None:
                results.append(self.method(thing, method, None, [right], {}, scope))
        for thing in _plain_objects(right) if not results else ():
            if thing.functions(f"__r{name}__"):
                results.append(self.method(thing, f"__r{name}__", None, [left], {}, scope))
        return union(results) if results else None

    def _shown(self, value: Value, node: ast.expr, scope: Scope) -> bool:
        """Run what an object is shown by that operators fill, where ``node`` prints it or makes a text of it. Whether
        there is such a one. What methods fill, `meter.update(loss.item())`, is made global as they are called."""
        asked = (node, *scope.source.ancestors(node)) if value.things else ()
        call = next((each for each in asked if isinstance(each, ast.Call)), None)
        shown = False
        for thing in filter(_is_filled_by_operators, _plain_objects(value)):
            method = next((name for name in TEXTS if thing.functions(name)), None)
            if method is not None:
                shown = True
                if call is not None:
                    self.method(thing, method, call, [], {}, scope)
        return shown

    def _number_of(self, kind: str, value: Value, node: ast.Call, scope: Scope) -> Value | None:
        """`float(meter)`, where a class says what that is."""
        told = [t for t in _plain_objects(value) if t.functions(f"__{kind}__")]
        return union(self.method(t, f"__{kind}__", node, [], {}, scope) for t in told) if told else None

    def _item_of(self, thing: Object, key: Value, scope: Scope) -> Value:
        """`metrics[0]`, where a class says what that is."""
        return self.method(thing, "__getitem__", None, [key], {}, scope)

    def _entered_as(self, value: Value, scope: Scope) -> Value:
        """What `with` binds: what `__enter__` gives, or what a generator function yields once."""
        results: list[Value] = []
        things = value.things
        for thing in sorted(things, key=stable_order):
            if isinstance(thing, Object) and thing.functions("__enter__"):
                results.append(self.method(thing, "__enter__", None, [], {}, scope))
            elif isinstance(thing, Stream) and not any(True for _ in thing.over.things):
                results.append(thing.element)
            else:
                results.append(value.but(things=frozenset([thing])))
        return union(results) if things else value

    def _left(self, value: Value, scope: Scope) -> None:
        """What runs when a block is left."""
        for thing in in_order(value.things):
            if isinstance(thing, Object) and thing.functions("__exit__"):
                self.method(thing, "__exit__", None, [], {}, scope)

    def _suspends_gradients(self, node: ast.expr) -> bool:
        """`with evaluating(model):`, of a generator function that yields below `with torch.no_grad():`."""
        called = self._lately(node.func).things if isinstance(node, ast.Call) else frozenset()
        functions = [t for t in called if isinstance(t, Function) and not isinstance(t.node, ast.Lambda)]
        return bool(functions) and all(self._yields_quietly(each) for each in functions)

    def _yields_quietly(self, function: Function) -> bool:
        source, yields = function.source, [n for n in walk(function.node) if isinstance(n, ast.Yield)]
        return bool(yields) and all(
            any(
                self.catalog.has(getattr(thing, "name", ""), "no_grad")
                for around in source.ancestors(each)
                if isinstance(around, ast.With)
                for item in around.items
                for thing in self._lately(item.context_expr).things
            )
            for each in yields
        )


def _is_filled_by_operators(thing: Object) -> bool:
    """`stats += loss`"""
    return any(thing.functions(f"__{kind}{name}__") for name in OPERATORS.values() for kind in ("", "i", "r"))


def _plain_objects(value: Value) -> Iterator[Object]:
    """The objects of classes of the project that are none of torch's, in an order that does not change."""
    for thing in in_order(value.things):
        if isinstance(thing, Object) and thing.cls is not None and not thing.roles and not thing.is_writer:
            yield thing
