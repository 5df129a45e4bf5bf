"""Functions of the project, which are entered at each call."""

from __future__ import annotations

import ast
from typing import Any

from autodist.deep import READING
from autodist.interpreter.attributes import Attributes
from autodist.interpreter.events import Call_
from autodist.interpreter.machine import Spent
from autodist.interpreter.questions import in_order
from autodist.interpreter.words import REST
from autodist.source import is_generator, walk
from autodist.spread import LOCAL
from autodist.values import (
    NOTHING,
    External,
    Function,
    Items,
    Object,
    Scope,
    Stream,
    Table,
    Value,
    constant,
    of,
    stored,
    union,
)

MAX_DEPTH = 24
MAX_REPEATS = 24
"""So often a function is entered from one call in it, with whatever leads there,"""
REPEATS_OF_A_WAY = 4
"""and so often after that on each way that leads there,"""
MOST_CALLS = 192
"""but no more than this."""


class Functions(Attributes):
    """Functions: definitions and calls."""

    def do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function = self._remember(node, lambda: Function(node, scope.source, scope))
        function.scope = scope
        made = self._decorate(node, of(function), scope)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.eval(default, scope)
        scope.names[node.name] = made

    do_AsyncFunctionDef = do_FunctionDef

    def _decorate(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, made: Value, scope: Scope
    ) -> Value:
        """Run decorators of the project for what they do besides: `@register("name")` keeps what it is given. What they
        make of a function takes its place where that goes through something, `@over_batches`."""
        for decorator in reversed(node.decorator_list):
            value = self.eval(decorator, scope)
            for thing in in_order(value.things):
                if isinstance(thing, External) and "at_exit" in self.catalog.roles(thing.name):
                    self.register_at_exit(decorator, [made], {}, scope)
                if isinstance(thing, Function) and not scope.is_class:
                    path, self._path = self._path, (*self._path, id(decorator))  # what it gives is this function's own
                    given = self.call_function(thing, None, [made], {}, scope)
                    self._path = path
                    made = given if not isinstance(node, ast.ClassDef) and _goes_through(given, made) else made
        return made

    def method(
        self,
        owner: Object,
        name: str,
        node: ast.Call | None,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        """Call a method that a class of the project defines."""
        found = owner.cls.find(name) if owner.cls is not None else None
        if found is None:
            return NOTHING
        bound = self._bound(found[1], owner, owner.node, scope)
        return union(
            self.call_function(thing, node, args, keywords, scope)
            for thing in bound.things
            if isinstance(thing, Function)
        )

    def call_function(
        self, function: Function, node: ast.Call | None, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """Run a function of the project with these arguments."""
        args, keywords = [*function.args, *args], {**function.keywords, **keywords}
        definition = function.node
        active = sum(call.function.node is definition for call in self._calls)
        told = definition, node, _told(function, args)
        calls = self._repeats[told] = self._repeats.get(told, 0) + 1
        way = *told, self._path
        here = self._repeats[way] = self._repeats.get(way, 0) + 1
        often = calls > MAX_REPEATS * (1 + 4 * (self._forward > 0))
        if often and not self._forward and here <= REPEATS_OF_A_WAY:
            often = calls > MOST_CALLS  # called from elsewhere, it does so to other things
        if len(self._calls) >= MAX_DEPTH or active >= 2 or often:
            if often and here == 1 and node is not None and not self._forward:
                self.event("left_out", node, scope, of(function))
            given = [*args, *keywords.values()]
            self._take_in(function, node, given, scope)
            return self._mixed(given)
        self.executed.add(definition)
        self._entered.add(definition)
        READING.functions, READING.path = READING.functions + 1, function.source.path
        key = self._signature(function, args, keywords)
        if key is not None and key in self._results and calls > 2:
            return self._results[key]
        inner = Scope(function.source, function.scope)
        self._bind(function, args, keywords, inner)
        if node is not None:
            self._note_rest(function, node, inner, scope)
        self._note_inflow(function, node, args, keywords, scope)
        if node is not None:
            self.callers.setdefault(definition, {})[node] = scope.source
        call = Call_(node, scope.source, scope, function)
        inner.shared = {name: (each, scope) for name, each in call.given().items()}
        self._calls.append(call)
        begun = self._steps
        path, self._path = self._path, (*self._path, id(node))[-12:]
        around, self._branches = self._branches, self._branches if function.owner is not None else ()
        one_rank = self._one_rank
        if definition not in self._quiet:
            self._quiet[definition] = not isinstance(definition, ast.Lambda) and any(
                self._is_no_grad(d, function.scope) for d in definition.decorator_list
            )
        quiet = self._quiet[definition]
        self._no_grad += quiet
        self._returns.append([])
        self._yields.append([])
        try:
            if isinstance(definition, ast.Lambda):
                result = self.eval(definition.body, inner)
            else:
                fell_through = not self.block(definition.body, inner)
                returns = self._returns[-1]
                result = union(returns) if returns else constant(None)
                if fell_through and returns and len(returns) == 1 and returns[0].const is None:
                    result = constant(None)
            yields = self._yields[-1]
        finally:
            self._yields.pop()
            self._returns.pop()
            self._no_grad -= quiet
            self._one_rank = one_rank
            self._branches = around
            self._path = path
            self._calls.pop()
            spent = self.spent.setdefault(definition, Spent(function))
            spent.entered += 1
            spent.steps += (self._steps - begun) * (not active)  # of one that calls itself, what the outer one took
        if yields or is_generator(definition):
            element = union(yields)
            result = Value(frozenset([Stream(element, NOTHING)]), origins=element.origins)
        if key is not None and self._forward:
            self._results[key] = result
        return result

    def _take_in(self, function: Function, node: ast.Call | None, values: list[Value], scope: Scope) -> None:
        """Let an object keep what a method of it is given that is not entered once more, wherever it may do so."""
        owner = function.owner
        local = union(value for value in values if value.spread.is_local and not value.things)
        if self._forward or not local.spread.is_local or not isinstance(owner, Object) or "module" in owner.roles:
            return
        if node is not None:
            self._brings_in(owner, node, scope)
        for name, held in owner.attributes.items():
            if not held.things and not isinstance(held.const, str):
                owner.attributes[name] = held | Value(spread=LOCAL, origins=local.origins)

    def _signature(self, function: Function, args: list[Value], keywords: dict[str, Value]) -> Any:
        """What a forward pass depends on; running it again with the same tells nothing new."""
        if not self._forward:
            return None
        owner = id(function.owner)
        given = tuple((v.things, v.spread, v.origins, repr(v.const) if v.firm else "") for v in args)
        named = tuple((k, v.things, v.spread, v.origins, repr(v.const) if v.firm else "") for k, v in keywords.items())
        evaluated = self._evaluated if self._no_grad else None
        return function.node, owner, given, named, evaluated, frozenset(self._outcomes.items())

    def _is_no_grad(self, decorator: ast.expr, scope: Scope) -> bool:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        things = self.eval(node, scope).things
        return any(isinstance(t, External) and self.catalog.has(t.name, "no_grad") for t in things)

    def _note_inflow(
        self, function: Function, node: ast.Call | None, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """Remember which arguments bring local values into an object of the project, a meter for instance."""
        owner = function.owner
        if node is not None and isinstance(owner, Object) and "module" not in owner.roles:
            self._brings_in(owner, node, scope)

    def _brings_in(self, owner: Object, node: ast.Call, scope: Scope) -> None:
        for expression in [*node.args, *(keyword.value for keyword in node.keywords)]:
            value = self._lately(expression)
            if (value.spread.is_local or self.holds_local(value)) and (scope.source, expression) not in owner.inflows:
                owner.inflows.append((scope.source, expression))

    def _bind(self, function: Function, args: list[Value], keywords: dict[str, Value], inner: Scope) -> None:
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        given = list(args)
        if function.owner is not None and names:
            given.insert(0, of(function.owner))
        defaults = function.defaults
        names += [keyword.arg for keyword in spec.kwonlyargs]
        positional = len(names) - len(spec.kwonlyargs)
        rest = dict(keywords)
        unknown = rest.pop(REST, NOTHING)
        for index, name in enumerate(names):
            if index < len(given) and index < positional:
                inner.names[name] = given[index]
            elif name in rest:
                inner.names[name] = rest.pop(name)
            elif name in defaults and unknown is not NOTHING and name in self._quoted:
                inner.names[name] = unknown  # `model(**batch)`, of a batch with `"labels"`
            elif name in defaults:
                inner.names[name] = self.eval(defaults[name], function.scope).but(firm=unknown is NOTHING) | unknown
            else:
                inner.names[name] = unknown
        if spec.vararg is not None:
            inner.names[spec.vararg.arg] = of(Items(spec.vararg, given[positional:], NOTHING))
        if spec.kwarg is not None:
            inner.names[spec.kwarg.arg] = of(Table(spec.kwarg, dict(rest), NOTHING))

    def _note_rest(self, function: Function, node: ast.Call, inner: Scope, scope: Scope) -> None:
        """Remember which expressions `**logs` of a function holds."""
        spec = function.node.args
        for thing in inner.names[spec.kwarg.arg].things if spec.kwarg is not None else ():
            if isinstance(thing, Table):
                given = (each.value for each in node.keywords if each.arg in thing.entries)
                thing.stores |= stored(scope.source, given)


def _goes_through(given: Value, made: Value) -> bool:
    """Whether a decorator gives functions that have a loop around what they call."""
    functions = [each for each in given.functions if each not in made.things]
    loops = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
    return len(functions) == len(given.things) == 1 and any(isinstance(n, loops) for n in walk(functions[0].node))


def _told(function: Function, args: list[Value]) -> Any:
    """Which object a function of a class is asked to do what, by a word: `callback("after_loss")` of each callback is a
    call of its own, and not the same one once more."""
    words = tuple(each.const for each in args if isinstance(each.const, str) and each.firm)
    return (id(function.owner), words) if words and function.owner is not None else None
