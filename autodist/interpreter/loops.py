"""Loops and comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from autodist.interpreter.contents import UNROLLED
from autodist.interpreter.events import Loop
from autodist.interpreter.questions import is_hashable, is_set, joined, last_part
from autodist.interpreter.stores import Stores
from autodist.source import bound_each_time
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    Items,
    Object,
    Parameters,
    Scope,
    Table,
    Value,
    constant,
    drawn_by_evaluation,
    drawn_from,
    of,
    stored,
)


class Loops(Stores):
    """What runs once for each element."""

    def do_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> bool:
        iterable = self.eval(node.iter, scope)
        self.event("iterate", node, scope, iterable)
        if is_set(iterable):
            self.event("ordered", node.iter, scope, iterable)
        function = self._calls[-1].function if self._calls else None
        loop = Loop(node, scope.source, scope, function)
        parts = self._unrolled(iterable) or self._numbered_phases(node.iter)
        self._loops.append(loop)
        if parts is not None:
            path = self._path
            for number, part in enumerate(parts):
                if isinstance(part.const, str):  # what is made in one phase of an epoch is not that of another
                    self._path = (*path, hash(part.const))
                elif any(map(self._is_of_model, (part, *self._contents(part)))):  # nor what is made of one model
                    self._path = (*path, number)
                else:
                    self._path = path
                self.assign(node.target, part.but(firm=True) if part.const is not UNKNOWN else part, scope, None)
                if self.block(node.body, scope) and len(parts) == 1:
                    break
            self._path = path
        else:
            element = self._element(iterable, node)

            def bind() -> None:
                self.assign(node.target, element, scope, node.iter)
                self._share_items(node.target, node.iter, scope)

            self._repeat(node.body, scope, bind, bound_each_time(node) if any(drawn_from(iterable)) else ())
        self._loops.pop()
        self.block(node.orelse, scope)
        return False

    do_AsyncFor = do_For

    def _is_of_model(self, value: Value) -> bool:
        return self._modules_in(value) or any(isinstance(t, Parameters) for t in value.things)

    def do_While(self, node: ast.While, scope: Scope) -> bool:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        self._loops.append(Loop(node, scope.source, scope, self._calls[-1].function if self._calls else None))
        self._repeat(node.body, scope, lambda: None)
        later = self.eval(node.test, scope)
        self._loops.pop()
        if drawn_by_evaluation([later]):  # `while validation_loss > 0.1:`
            self.event("test", node.test, scope, later)
        self.block(node.orelse, scope)
        return False

    def _repeat(
        self, body: Sequence[ast.stmt], scope: Scope, bind: Callable[[], None], sure: Collection[str] = ()
    ) -> None:
        """Run a loop body until what it leaves no longer changes, at most twice. It runs once at least where some names
        are ``sure`` to be bound in it: they no longer hold what they held before."""
        around, self._branches = self._branches, (*self._branches, id(body))
        rounds = 1 if self._again else 2
        for again in range(rounds):
            start = dict(scope.names)
            bind()
            # loops within have found what they leave when this one runs again
            self._again += again
            self.block(body, scope)
            self._again -= again
            left = scope.names
            scope.names = joined([start, left])
            if scope.names == start:
                break
        scope.names |= {name: left[name] for name in sure if name in left}
        self._branches = around

    def _unrolled(self, iterable: Value) -> list[Value] | None:
        """The elements of a short literal list of constants, such as the phases of an epoch."""
        lists = [t for t in iterable.things if isinstance(t, Items)]
        if len(lists) == 1 and len(iterable.things) == 1 and 0 < len(lists[0].parts) <= UNROLLED:
            parts = lists[0].parts
            if all(isinstance(p.const, str) or self._modules_in(p) or any(p.objects("loader")) for p in parts):
                return list(parts)
            if all(any(isinstance(t, Items) for t in p.things) for p in parts):
                return list(parts)
        return None

    def _named_phases(self, iterable: Value) -> list[Value] | None:
        """`train_set, test_set = [Digits(split) for split in ("train", "test")]`"""
        phases = self._unrolled(iterable)
        return phases if phases and all(isinstance(each.const, str) for each in phases) else None

    @staticmethod
    def _data_sets(iterable: Value) -> list[Value] | None:
        """`[DataLoader(each, 8) for each in (train_set, test_set)]`, of which each becomes something else."""
        lists = [t for t in iterable.things if isinstance(t, Items)]
        if len(lists) != 1 or len(iterable.things) != 1 or lists[0].element is not NOTHING:
            return None
        parts = lists[0].parts
        return list(parts) if 1 < len(parts) <= UNROLLED and all(any(p.objects("dataset")) for p in parts) else None

    def _numbered_phases(self, over: ast.expr) -> list[Value] | None:
        """`for i, (mode, epochs) in enumerate([("train", 1), ("val", 1)])`, each of which does something else."""
        called = self._lately(over.func).things if isinstance(over, ast.Call) else frozenset()
        if not isinstance(over, ast.Call) or called != {External("builtins.enumerate")} or len(over.args) != 1:
            return None
        numbered = self._lately(over.args[0])
        phases = self._data_sets(numbered) or self._unrolled(numbered) if not over.keywords else None
        if phases is None or not all(_is_named_phase(each) or any(each.objects("dataset")) for each in phases):
            return None
        pairs = [self._remember(over, lambda: Items(over, [], NOTHING), ("phase", n)) for n in range(len(phases))]
        for number, pair in enumerate(pairs):
            pair.parts = [constant(number, firm=True), phases[number]]
        return [*map(of, pairs)]

    def _comprehension(self, node: Any, scope: Scope, finish: Callable[[Scope], Value], over: list[Value]) -> Value:
        inner = Scope(scope.source, scope)
        depth = len(self._loops)

        def run(generators: Sequence[ast.comprehension]) -> Value:
            if not generators:
                return finish(inner)
            first, *rest = generators
            iterable = self.eval(first.iter, inner)
            if first is node.generators[0]:
                over.append(iterable)
            if is_set(iterable) and isinstance(node, (ast.ListComp, ast.DictComp)):
                self.event("ordered", first.iter, scope, iterable)
            self.event("iterate", first, scope, iterable)
            function = self._calls[-1].function if self._calls else None
            self._loops.append(Loop(first, scope.source, scope, function))
            parts = self._unrolled(iterable) or self._data_sets(iterable) or self._numbered_phases(first.iter)
            one = self._element(iterable, first) if parts is None else NOTHING
            result = NOTHING
            for number, element in enumerate(parts if parts is not None else [one]):
                self.assign(first.target, element.but(firm=True) if parts is not None else element, inner, first.iter)
                for test in first.ifs:
                    self.event("test", test, inner, self.eval(test, inner))
                path = self._path
                if parts is not None:
                    self._path = (*path, hash(element.const) if element.const is not UNKNOWN else number)
                result = result | run(rest)
                self._path = path
            self._loops.pop()
            return result

        value = run(node.generators)
        del self._loops[depth:]
        return value

    def of_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Value:
        items = self._remember(node, lambda: Items(node, [], NOTHING))

        tests = [test for generator in node.generators for test in generator.ifs]

        parts: list[Value] = []

        def finish(inner: Scope) -> Value:
            value = self.eval(node.elt, inner)
            parts.append(value)
            for test in tests:
                value = self._of_class(value, node.elt, test)
            items.element = items.element | value
            return value

        iterables: list[Value] = []
        element = self._comprehension(node, scope, finish, iterables)
        alone = len(node.generators) == 1 and not tests
        phases = self._data_sets(iterables[0]) or self._numbered_phases(node.generators[0].iter)
        phases = phases or self._named_phases(iterables[0])
        if (
            alone and phases is not None and len(phases) == len(parts)
        ):  # `[Digits(split) for split in ("train", "test")]`
            items.parts, items.element = parts, NOTHING
            return of(items)
        if alone and isinstance(node, ast.ListComp) and len(parts) == len(_pairs(iterables[0])):
            items.parts, items.element = parts, NOTHING  # `[a + b for a, b in zip(sums, args)]`
            return of(items)
        parameters = frozenset(replace(t, one=False) for t in element.things if isinstance(t, Parameters))
        sampled = iterables[0].origins | element.origins
        return Value(frozenset([items]) | parameters, origins=sampled)

    def _of_class(self, value: Value, node: ast.expr, test: ast.expr) -> Value:
        """What a value can be where `isinstance(node, Class)` holds, of a class of the project."""
        asked = test.args if isinstance(test, ast.Call) and getattr(test.func, "id", "") == "isinstance" else []
        if len(asked) != 2 or ast.dump(asked[0]) != ast.dump(node):
            return value
        classes = self._lately(asked[1]).things
        if not classes or not all(isinstance(each, Class) for each in classes):
            return value
        others = (t for t in value.things if isinstance(t, Object))
        gone = {t for t in others if t.cls is None or classes.isdisjoint(t.cls.line())}
        return value.but(things=value.things - gone)

    of_SetComp = of_ListComp

    of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp, scope: Scope) -> Value:
        table = self._remember(node, lambda: Table(node, {}, NOTHING, stored(scope.source, [node.value])))

        def finish(inner: Scope) -> Value:
            key, value = self.eval(node.key, inner), self.eval(node.value, inner)
            if key.const is not UNKNOWN and is_hashable(key.const):
                table.entries[key.const] = value
            else:
                table.element = table.element | value
            return NOTHING

        self._comprehension(node, scope, finish, [])
        return of(table)


def _is_named_phase(value: Value) -> bool:
    """`"train"`, `("train", 1)`"""
    told = [value, *(part for t in value.things if isinstance(t, Items) for part in t.parts)]
    return any(isinstance(each.const, str) for each in told)


def _pairs(value: Value) -> list[Value]:
    """What `zip` gives of lists that are known in full."""
    lists = [t for t in value.things if isinstance(t, Items)]
    zipped = len(lists) == 1 == len(value.things) and isinstance(lists[0].node, ast.Call)
    return lists[0].parts if zipped and last_part(lists[0].node.func) == "zip" else []  # type: ignore[attr-defined]
