"""Evaluating an expression, and keeping what came of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property
from typing import Any

from autodist import alternatives
from autodist.interpreter.contents import Contents
from autodist.interpreter.events import Call_
from autodist.interpreter.overloads import Overloads
from autodist.interpreter.questions import children_of, is_entered, is_known, last_part
from autodist.interpreter.words import CUTTING, REST, SIZES
from autodist.source import filled_in, last_name, operands
from autodist.spread import LOCAL, SAME
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Function,
    Inside,
    Items,
    Object,
    OptimizerState,
    Parameters,
    Scope,
    Table,
    Thing,
    Value,
    union,
)

COMPUTING = frozenset([ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Subscript, ast.Call])
READ = frozenset([ast.Name, ast.Attribute, ast.Constant])


class Evaluation(Contents, Overloads):
    """Expressions, of whatever kind."""

    def eval(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression may evaluate to."""
        handler = self._evaluators.get(type(node))
        if handler is None:
            handler = self._evaluators[type(node)] = getattr(self, "of_" + type(node).__name__, self._other)
        return self._noted(node, handler(node, scope), scope)

    @cached_property
    def _evaluators(self) -> dict[type[ast.expr], Callable[[Any, Scope], Value]]:
        """How each kind of expression is evaluated that has been met so far."""
        return {}

    def _noted(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """Keep what ``node`` evaluated to, and take for granted what is planned for it."""
        plan = self.plan
        if type(node) in READ and value.spread is SAME and not value.origins:
            return self._read(node, value, scope)
        if self._outcomes and value.things:
            value = self._possible(value)
        if value.spread.is_local and node in self.catalog.measured:
            value = value.computed(LOCAL)
        if isinstance(node, ast.Call) and value.spread.is_local and not is_entered(node, self._lately):
            self._note_squeezed(node, value, scope)
        if not self._forward:
            value = self._weighed(node, value)
        if value.things and node in plan.wraps:  # made in the argument of a call
            value = self._planned(node, value)
            self.event("wrapped", node, scope, value)
        return self._kept(node, value, scope)

    def _read(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """Keep what a name, an attribute or a constant is that all ranks have alike, and of which nothing is planned:
        most of all that is evaluated, of which less is to be asked."""
        if self._outcomes and value.things:
            value = self._possible(value)
        if (value.things or value.weights) and not self._forward:
            value = self._weighed(node, value)
        return self._kept(node, value, scope)

    def _kept(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        self.latest[node] = value
        old = self.values.get(node)
        if old is not value:
            self.values[node] = value if old is None else old | value
        self.sources[node] = scope.source
        return value

    def _note_squeezed(self, node: ast.Call, value: Value, scope: Scope) -> None:
        """`model(x).squeeze()`, which drops the axis of the samples as well, should there be one of them."""
        if last_name(node.func) != "squeeze" or node.keywords or value.things:
            return
        given = [each for each in operands(node) if not self._lately(each).things]
        if len(given) == 1:
            self.event("squeezed", node, scope, value)

    def _possible(self, value: Value) -> Value:
        """A value without what is made only where tests come out another way than they do here."""
        if all(map(self._can_be, value.things)):
            return value
        things = frozenset(thing for thing in value.things if self._can_be(thing))
        return value.but(things=things) if things else value

    def _can_be(self, thing: Thing) -> bool:
        made = alternatives.owner_of(thing)
        where = self._made_where.get(made) if made is not None else None
        return not where or not alternatives.contradicts(where, self._outcomes)

    def _weighed(self, node: ast.expr, value: Value) -> Value:
        """Outside of forward passes: whether a value is computed from parameters, so that gradients flow to them."""
        if not (value.things or value.weights) and type(node) not in COMPUTING:
            return value
        name = last_part(node) if isinstance(node, ast.Call) else ""
        cut = name in CUTTING or name in SIZES or name in ("float", "int", "bool", "len")
        owners: frozenset[Thing] = frozenset()
        found = value
        if isinstance(node, ast.Attribute):
            if any(isinstance(t, Object) and "parameter" in t.roles for t in value.things):
                held = self.values.get(node.value, NOTHING).things
                owners = frozenset(t for t in held if isinstance(t, Object) and "module" in t.roles)
        elif cut:
            found = value.but(weights=frozenset()) if value.weights else value
        elif type(node) in COMPUTING:
            called = self.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else ()
            if not any(isinstance(t, Function) for t in called):
                found = self._with_weights(value, node)
        kinds = {type(each) for each in value.things}
        computed = found.weights or Parameters in kinds
        kept = computed or owners or Inside in kinds or OptimizerState in kinds
        if not kept and found is value or any(map(self._is_constructor, self._calls)):
            return value
        if kept:
            self.apart[node] = len(self.events)
        if owners:
            return value.but(weights=owners) if not self._no_grad else value
        if computed and not self._no_grad:
            self.flowing.add(node)
        return found

    def _is_constructor(self, call: Call_) -> bool:
        """Whether a call makes a module: its parameters are its own yet, whole and untrained."""
        function = call.function
        roles = getattr(function.owner, "roles", ())
        return "module" in roles and getattr(function.node, "name", "") == "__init__"

    def _with_weights(self, value: Value, node: ast.expr) -> Value:
        """A value with the modules whose parameters its operands are, or are computed from."""
        if self._no_grad:
            return value
        found = value.weights
        for child in children_of(node):
            operand = self.values.get(child, NOTHING)
            for each in (operand, *self._contents(operand)) if operand.things else (operand,):
                if each.weights:
                    found = found | each.weights
                for thing in each.things:  # a registry of hundreds of functions is come by as often
                    if isinstance(thing, Parameters) and not thing.cut:
                        found = found | {thing.module}
        return value.but(weights=found) if found else value

    def _other(self, node: ast.expr, scope: Scope) -> Value:
        values = [self.eval(child, scope) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self._mixed(values)

    def _arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                value = self.eval(arg.value, scope)
                lists = [t for t in value.things if isinstance(t, Items) and t.parts]
                sizes = {len(each.parts) for each in lists}
                if len(sizes) == 1:
                    args += [self._part(value, index, 0) for index in range(sizes.pop())]
                    later = union(each.element for each in lists)  # what was appended since
                    args += [later] if later is not NOTHING else []
                else:
                    args.append(self._element(value, arg))
            else:
                args.append(self._firm(self.eval(arg, scope), arg))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = self._firm(value, keyword.value)
                continue
            for thing in value.things:
                if isinstance(thing, Table):
                    keywords.update(
                        {k: v for k, v in thing.entries.items() if isinstance(k, str) and k not in keywords}
                    )
                    value = value | thing.element
            if value.spread.is_local or value.origins or not any(map(is_known, value.things)):
                keywords[REST] = value.but(things=frozenset(), const=UNKNOWN)  # any argument may be among them
        return args, keywords

    def spelled_out(self, node: ast.Call) -> ast.Call:
        """A call with the whole numbers that its arguments are sure to be: `x.norm(2, dim)` as `x.norm(2, 1)`, but not
        `x.norm(2, args.dim)`, which has another default than a run may ask for."""

        def told(each: ast.expr) -> ast.expr:
            value = self._lately(each)
            whole = isinstance(each, (ast.Name, ast.Attribute)) and type(value.const) is int and not value.things
            whole = whole and (value.firm or self._is_literal(each) or self._is_setting(each))
            return ast.copy_location(ast.Constant(value.const), each) if whole else each

        node = self.filled_in(node)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(isinstance(each, (ast.Name, ast.Attribute)) for each in given):
            keywords = [ast.keyword(keyword.arg, told(keyword.value)) for keyword in node.keywords]
            node = ast.Call(node.func, [told(each) for each in node.args], keywords)
        return node

    def filled_in(self, node: ast.Call) -> ast.Call:
        """A call with the arguments that `partial` has given to what it calls."""
        return filled_in(node, self.presets.get(node, ()))

    def _is_setting(self, name: ast.expr) -> bool:
        """Whether an object of the project has it: `self.dim`."""
        holder = self._lately(name.value) if isinstance(name, ast.Attribute) else NOTHING
        return any(isinstance(t, Object) and t.cls is not None for t in holder.things)

    def _is_literal(self, name: ast.expr) -> bool:
        """Whether a name is bound to nothing but numbers that are written there."""
        values = self._bound_to(name)
        return bool(values) and all(map(_is_number, values))

    def _bound_to(self, name: ast.expr) -> list[ast.expr]:
        """What a name is bound to in its function, where nothing but plain assignments binds it."""
        source = self.sources.get(name)
        if source is None or not isinstance(name, ast.Name):
            return []
        bound = [source.parents[each] for each in source.stores(name)]
        values = [each.value for each in bound if isinstance(each, ast.Assign)]
        return values if len(values) == len(bound) else []

    def _firm(self, value: Value, node: ast.expr) -> Value:
        """A literal passed to a function decides the branches in it."""
        return value.but(firm=True) if isinstance(node, ast.Constant) else value


def _is_number(node: ast.expr) -> bool:
    """A whole number as it is written, `-1` as well."""
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int
