"""Objects that are made of fields which a class declares: data classes, those of `attrs`, named tuples."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from autodist.interpreter.functions import Functions
from autodist.interpreter.questions import stable_order
from autodist.interpreter.words import REST
from autodist.source import last_name
from autodist.values import NOTHING, Class, Items, Object, Scope, Value, union

ATTRS = frozenset("attrib ib field".split())
"""Under which names `attrs` offers what declares a field."""


class Records(Functions):
    """Instances whose fields are what they are given, or what the class says."""

    def _fill(self, cls: Class, made: Object, args: list[Value], keywords: dict[str, Value]) -> None:
        """The attributes of an instance of a class without an `__init__` of its own."""
        body = [statement for each in reversed(list(cls.line())) for statement in each.node.body]
        fields = _fields(body)
        given = {**dict(zip(fields, args, strict=False)), **keywords}
        made.attributes.update(given)
        makers = _makers(body)
        for name, default in fields.items():
            if name in given:
                continue
            if name in makers:  # `@net.default`, which asks the fields above it
                made.attributes[name] = self.method(made, makers[name], None, [], {}, cls.scope)
            elif isinstance(default, ast.Call):
                self._fill_by_default(made, name, default, cls.scope)

    def _fill_by_default(self, made: Object, name: str, field: ast.Call, scope: Scope) -> None:
        """`field(default_factory=list)`, `attrib(default=Factory(list))`, `attrib(default=1)`"""
        for option in field.keywords:
            value = option.value
            if option.arg == "default" and isinstance(value, ast.Call) and last_name(value.func) == "Factory":
                value = value.args[0] if value.args else value
            elif option.arg == "default":
                made.attributes[name] = self.eval(value, scope)
                continue
            elif option.arg not in ("default_factory", "factory"):
                continue
            made.attributes[name] = self._produced(value, field, made, scope)

    def _produced(self, factory: ast.expr, node: ast.Call, owner: Object, scope: Scope) -> Value:
        """What each instance of a class gets of its own."""
        path, self._path = self._path, (*owner.path, id(owner.node))[-12:]
        make = sorted(self.eval(factory, scope).things, key=stable_order)
        result = union(self._call(thing, node, [], {}, scope) for thing in make)
        self._path = path
        return result

    def _named_tuple(
        self, cls: Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """What `namedtuple("Net", ["model", "optimizer"])` makes: its fields have names and places."""
        names, _ = declared(cls)
        if any(isinstance(each, ast.Starred) for each in node.args) or REST in keywords or len(args) > len(names):
            return None
        fields = {**dict(zip(names, args, strict=False)), **keywords}
        made = self._remember(node, lambda: Object(cls.name, frozenset(), node, scope.source, self._path), "record")
        made.attributes.update(fields)
        items = self._remember(node, lambda: Items(node, [], NOTHING), "record in order")
        items.parts = [fields.get(name, NOTHING) for name in names]
        return Value(frozenset([made, items]))


def _fields(body: list[ast.stmt]) -> Mapping[str, ast.expr | None]:
    """The declared fields in order, and what the class says of each: `size: int = 8`, `size = attrib(default=8)`."""
    fields: dict[str, ast.expr | None] = {}
    for each in body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            fields[each.target.id] = each.value
        elif isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and last_name(each.value.func) in ATTRS:
            fields |= {target.id: each.value for target in each.targets if isinstance(target, ast.Name)}
    return fields


def _makers(body: list[ast.stmt]) -> Mapping[str, str]:
    """The methods that make what fields are by default, by the name of the field: `@net.default`."""
    makers = {}
    for each in body:
        for decorator in each.decorator_list if isinstance(each, ast.FunctionDef) else ():
            field = decorator.value if isinstance(decorator, ast.Attribute) and decorator.attr == "default" else None
            if isinstance(field, ast.Name) and isinstance(each, ast.FunctionDef):
                makers[field.id] = each.name
    return makers


def declared(thing: object) -> tuple[list[str], bool]:
    """The names of the fields that a class declares, as a named tuple or a dataclass does, and whether it is a
    tuple."""
    if isinstance(thing, Object) and thing.name == "collections.namedtuple":
        listed = thing.node.args[1] if len(thing.node.args) > 1 else None
        if isinstance(listed, ast.Constant) and isinstance(listed.value, str):
            return listed.value.replace(",", " ").split(), True
        named = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
        return [each.value for each in named if isinstance(each, ast.Constant) and isinstance(each.value, str)], True
    if not isinstance(thing, Class):
        return [], False
    is_tuple = any(last_name(each) == "NamedTuple" for each in thing.node.bases)
    decorators = (each.func if isinstance(each, ast.Call) else each for each in thing.node.decorator_list)
    if not is_tuple and not any(last_name(each) == "dataclass" for each in decorators):
        return [], False
    annotated = (each.target for each in thing.node.body if isinstance(each, ast.AnnAssign))
    return [each.id for each in annotated if isinstance(each, ast.Name)], is_tuple
