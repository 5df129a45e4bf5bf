"""Expressions that no other module is about: constants, strings, lists, dicts."""

from __future__ import annotations

import ast

from autodist.interpreter.arithmetic import Arithmetic
from autodist.interpreter.questions import is_hashable
from autodist.interpreter.stores import Stores
from autodist.source import walk
from autodist.values import NOTHING, UNKNOWN, Function, Items, Scope, Table, Value, Viewer, constant, of, stored

MANY = 500
"""Literals of more entries are data, of which no entry matters by itself: a vocabulary, tuned settings."""

DATUM = Value()
"""One of those entries. It is not `NOTHING`, which is what empty lists hold."""


class Expressions(Arithmetic, Stores):
    """Expressions of the simpler kinds."""

    def of_Constant(self, node: ast.Constant, scope: Scope) -> Value:
        if self._loops and type(node.value) is int:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        return constant(node.value)

    def of_NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        self.assign(node.target, value, scope, node.value)
        return value

    def of_Lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        return of(self._remember(node, lambda: Function(node, scope.source, scope)))

    def of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        values = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.eval(part.value, scope)
                self.values[part], self.sources[part] = value, scope.source
                if part.format_spec is not None:
                    self.eval(part.format_spec, scope)
                values.append(value)
                shown = self._shown(value, part, scope)
                if not shown and (value.spread.is_local or self.holds_local(value)):
                    self.event("format", part.value, scope, value)
        return self._text(values)

    def of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Value:
        if len(node.elts) > MANY and _is_literal(node):
            return of(self._remember(node, lambda: Items(node, [], DATUM)))
        items = self._remember(node, lambda: Items(node, [], NOTHING))
        parts, star = [], NOTHING
        for part in node.elts:
            if isinstance(part, ast.Starred):
                star = star | self._element(self.eval(part.value, scope), part)
            else:
                parts.append(self.eval(part, scope))
        if isinstance(node, ast.List) and items.parts and len(items.parts) == len(parts):
            items.parts = [a | b for a, b in zip(items.parts, parts, strict=False)]
        else:
            items.parts = parts
        items.element = items.element | star
        for place, part in enumerate(node.elts if star is NOTHING else ()):
            if isinstance(part, (ast.Name, ast.Call, ast.Attribute)):
                self._note_viewer(part, Viewer(items.parts, place, None, items), scope)
        return of(items)

    of_List = of_Tuple

    of_Set = of_Tuple

    def of_Dict(self, node: ast.Dict, scope: Scope) -> Value:
        if len(node.values) > MANY and _is_literal(node):
            return of(self._remember(node, lambda: Table(node, {}, DATUM)))
        table = self._remember(node, lambda: Table(node, {}, NOTHING))
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.eval(part, scope)
            name = self.eval(key, scope).const if key is not None else UNKNOWN
            if key is None:
                for thing in value.things:
                    if isinstance(thing, Table):
                        table.entries.update(thing.entries)
                        table.element = table.element | thing.element
            elif name is not UNKNOWN and is_hashable(name):
                table.put(name, value)
                self._note_viewer(part, Viewer(table.entries, name, None, table), scope)
            else:
                table.element = table.element | value
        table.stores |= stored(scope.source, node.values)
        return of(table)

    def of_Await(self, node: ast.Await, scope: Scope) -> Value:
        return self.eval(node.value, scope)

    def of_Yield(self, node: ast.Yield, scope: Scope) -> Value:
        value = self.eval(node.value, scope) if node.value is not None else NOTHING
        if self._yields:
            self._yields[-1].append(value)
        return NOTHING

    def of_YieldFrom(self, node: ast.YieldFrom, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        self.event("iter", node, scope, value)
        if self._yields:
            self._yields[-1].append(self._element(value, node))
        return NOTHING


def _is_literal(node: ast.expr) -> bool:
    """Whether nothing in it has to be worked out: numbers, texts, and lists and dicts of such."""
    kinds = (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context)
    return all(isinstance(each, kinds) for each in walk(node))
