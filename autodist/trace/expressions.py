"""Expressions: operators, subscripts, comprehensions, and what each gives."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Row
from dataclasses import replace
from functools import cached_property
from typing import Any

from autodist.program import EMPTY, UNKNOWN, Value, constant, held, joined
from autodist.source import all_of
from autodist.trace import folding
from autodist.trace.containers import Containers
from autodist.trace.names import thing
from autodist.trace.things import (
    Class,
    External,
    Frame,
    Function,
    Mapping,
    Method,
    Object,
    Sequence,
    Stream,
    carried,
    is_anew,
    is_of_loader,
    left,
    merged,
    picked_by,
)

ROUNDS = 4
"""How often the body of a loop is run at most until its names change no more."""


class Expressions(Containers):
    """Expressions of every kind but calls and attributes."""

    def eval(self, node: ast.expr, frame: Frame) -> Value:
        """What an expression may evaluate to."""
        handler = self._handlers.get(type(node))
        if handler is None:
            handler = self._handlers[type(node)] = getattr(self, "of_" + type(node).__name__, self._of_other)
        value: Value = handler(node, frame)
        before = self.program.values.get(node)
        if before is not value:
            self.program.values[node] = value if before is None else before | value
        return value

    @cached_property
    def _handlers(self) -> dict[type[ast.expr], Callable[[Any, Frame], Value]]:
        return {}

    def _of_other(self, node: ast.expr, frame: Frame) -> Value:
        parts = [self.eval(each, frame) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        return self.record(type(node).__name__.lower(), node, frame, parts)

    def of_Constant(self, node: ast.Constant, frame: Frame) -> Value:
        return constant(node.value)

    def of_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Value:
        parts = [self.eval(each, frame) for each in node.values]
        if all(each.is_constant for each in parts):
            return constant("".join(str(each.constant) for each in parts))
        return self.record("builtins.str.format", node, frame, parts)

    def of_FormattedValue(self, node: ast.FormattedValue, frame: Frame) -> Value:
        if node.format_spec is not None:
            self.eval(node.format_spec, frame)
        return self.shown(self.eval(node.value, frame), node, frame)

    def shown(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        """What a value is as a text: of an object of a class that says so, what its `__str__` gives, and of one of a
        library that is not known what it was made of."""
        found = Value(value.operations, value.constants)
        for each in value.things:
            held = each.owner if isinstance(each, Method) else each  # `Score(hits, n).value`
            own = each.cls if isinstance(each, Object) else None
            method = next((name for name in ("__str__", "__repr__") if own is not None and own.find(name)), None)
            if method is None:
                found |= thing(each) | (held.made if isinstance(held, Object) and not held.roles else EMPTY)
            else:
                found |= self.call(self.attribute(thing(each), method, node, frame), node, frame, [], {})
        return found

    def of_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.eval(node.value, frame)
        self.assign(node.target, value, frame.home)
        return value

    def of_Lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        return thing(self.make(node, lambda n, g: Function(node, frame)))

    def of_Await(self, node: ast.Await, frame: Frame) -> Value:
        return self.eval(node.value, frame)

    def of_Starred(self, node: ast.Starred, frame: Frame) -> Value:
        return self.eval(node.value, frame)

    def of_Yield(self, node: ast.Yield, frame: Frame) -> Value:
        value = self.eval(node.value, frame) if node.value is not None else constant(None)
        if self.endings:
            self.endings[-1].yielded.append(value)
        return self.record("yield", node, frame)

    def of_YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> Value:
        value = self.eval(node.value, frame)
        if self.endings:
            self.endings[-1].yielded.append(self.element(value, node, frame))
        return constant(None)

    # operators

    def of_BinOp(self, node: ast.BinOp, frame: Frame) -> Value:
        return self.binary(node, node.op, self.eval(node.left, frame), self.eval(node.right, frame), frame)

    def binary(self, node: ast.AST, op: ast.operator, left: Value, right: Value, frame: Frame) -> Value:
        """What an operator makes of two values."""
        known = folding.folded(op, left, right)
        if known is not UNKNOWN and not (self._counts() and type(known) in (int, float)):
            return constant(known)
        if (texts := folding.folded_texts(op, left, right)) is not None:
            return texts
        own = self._overloaded(folding.METHODS.get(type(op), ""), left, right, node, frame)
        if own is not None:
            return own
        if isinstance(op, (ast.Add, ast.Mult)) and (listed := self._lists(node, op, left, right, frame)) is not None:
            return listed
        dicts = [each for value in (left, right) for each in value.things if isinstance(each, Mapping)]
        if isinstance(op, ast.BitOr) and len(dicts) == len(left.things) + len(right.things) >= 2:
            return self.made_of(node, [left, right])
        if isinstance(op, ast.Mod) and isinstance(left.constant, str):
            shown = [self.shown(each, node, frame) for each in self.parts(right) or [right]]
            return self.record("builtins.str.format", node, frame, [left, *shown])
        return self.record("operator." + folding.NAMES[type(op)], node, frame, [left, right])

    def _counts(self) -> bool:
        """Whether this is in a loop, where a number may become another one in each round."""
        return any(each.kind == "loop" for each in self.guards)

    def _lists(self, node: ast.AST, op: ast.operator, left: Value, right: Value, frame: Frame) -> Value | None:
        """`names + others`, `[0] * n`"""
        lists = [t for each in (left, right) for t in each.things if isinstance(t, Sequence)]
        if not lists:
            return None
        if isinstance(op, ast.Mult):
            many, times = (left, right) if left.things else (right, left)
            parts = self.parts(many)
            if parts is not None and type(times.constant) is int and 0 < len(parts) * times.constant <= 32:
                return self.sequence(node, parts * times.constant, kind=lists[0].kind)
            made = self.sequence(node, None, self.element(many, node, frame), lists[0].kind, (many,))
            return made | (self.record("list.repeat", node, frame, [many, times]) if times.operations else EMPTY)
        one, other = self.parts(left), self.parts(right)
        if one is not None and other is not None and not self._counts():
            return self.sequence(node, one + other, kind=lists[0].kind)
        both = joined(self.element(each, node, frame) for each in (left, right))
        return self.sequence(node, None, both, lists[0].kind, (left, right))

    def _overloaded(self, name: str, left: Value, right: Value, node: ast.AST, frame: Frame) -> Value | None:
        """An operator that a class of the project defines."""
        for one, other, method in ((left, right, name), (right, left, "__r" + name[2:])):
            for each in one.things if name else ():
                if isinstance(each, Object) and each.cls is not None and each.cls.find(method):
                    return self.call(self.attribute(thing(each), method, node, frame), node, frame, [other], {})
        return None

    def of_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.eval(node.operand, frame)
        if isinstance(node.op, ast.Not) and (known := folding.truth(value)) is not None:
            return constant(not known)
        if (folded := folding.folded(node.op, value)) is not UNKNOWN:
            return constant(folded)
        return self.record("operator." + folding.NAMES[type(node.op)], node, frame, [value])

    def of_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Value:
        stops, found = isinstance(node.op, ast.Or), EMPTY
        for each in node.values:
            value = self.eval(each, frame)
            known = folding.truth(value)
            if known is stops:
                return found | value
            if known is None or each is node.values[-1]:
                found |= folding.without_none(value) if stops and each is not node.values[-1] else value
        return found

    def of_Compare(self, node: ast.Compare, frame: Frame) -> Value:
        left, found = self.eval(node.left, frame), EMPTY
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.eval(each, frame)
            found |= self._compared(node, op, left, right, frame)
            left = right
        return found

    def _compared(self, node: ast.AST, op: ast.cmpop, left: Value, right: Value, frame: Frame) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = folding.identity(left, right)
            if same is not None:
                return constant(same if isinstance(op, ast.Is) else not same)
        elif (known := folding.folded(op, left, right)) is not UNKNOWN:
            return constant(known)
        elif isinstance(op, (ast.Eq, ast.NotEq)) and None not in (
            lists := [self._constants_in(left), self._constants_in(right)]
        ):
            return constant((lists[0] == lists[1]) is isinstance(op, ast.Eq))
        if isinstance(op, (ast.In, ast.NotIn)) and left.is_constant:
            inside = self._contains(right, left.constant)
            if inside is not None:
                return constant(inside is isinstance(op, ast.In))
        own = self._overloaded(folding.METHODS.get(type(op), ""), left, right, node, frame)
        return own or self.record("operator." + folding.NAMES[type(op)], node, frame, [left, right])

    def _constants_in(self, value: Value) -> list[object] | None:
        """The constants of which a list consists, if it is one."""
        parts = self.parts(value) if all(getattr(each, "kind", "") == "list" for each in value.things) else None
        return [each.constant for each in parts] if parts is not None and all(e.is_constant for e in parts) else None

    def _contains(self, container: Value, wanted: object) -> bool | None:
        """Whether a list or dict of known contents contains a constant."""
        if len(container.things) == 1 and not (container.operations or container.constants):
            (one,) = container.things
            if isinstance(one, Mapping) and one.keys is EMPTY and one.anywhere is EMPTY:
                self.read(one)
                slot = one.entries.get(wanted)
                return slot is not None if slot is None or self.is_surely_bound(slot, one.guards) else None
        parts = self.parts(container)
        if parts is None or not all(each.is_constant for each in parts):
            return None
        return wanted in [each.constant for each in parts]

    def of_IfExp(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.eval(node.test, frame)
        known = self.decided(node.test, test, frame)
        if known is not None:
            return self.eval(node.body if known else node.orelse, frame)
        self.tested(node, test)
        with self.within("branch", node.body, frame, test):
            body = self.eval(node.body, frame)
        with self.within("branch", node.orelse, frame, test):
            other = self.eval(node.orelse, frame)
        return self.chosen(body, other, test, node, frame) or body | other

    def decided(self, node: ast.expr, test: Value, frame: Frame) -> bool | None:
        """Which way a branch goes. What a setting of the script says, a constant of a module, may change."""
        known = folding.truth(test)
        if known is None or isinstance(node, ast.Constant):
            return known
        if isinstance(node, ast.BoolOp) and known is isinstance(node.op, ast.Or):  # one of them says so
            each_way = (self.decided(each, self.eval(each, frame), frame) for each in node.values)
            return known if known in each_way else None
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id != "__name__":
                home = frame.find(each.id)
                if home is None or home.parent is not None or each.id in home.told_apart:
                    continue
                if home.names[each.id].constants:
                    return None
        return known

    def tested(self, node: ast.AST, test: Value) -> None:
        """Note what decides over a branch or a loop."""
        self.effect("test", test, self.region)

    # subscripts

    def of_Subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base = self.eval(node.value, frame)
        key = self.eval(node.slice, frame)
        return self.item(base, key, node, frame)

    def of_Slice(self, node: ast.Slice, frame: Frame) -> Value:
        parts = [
            self.eval(each, frame) if each is not None else constant(None)
            for each in (node.lower, node.upper, node.step)
        ]
        return self.record("builtins.slice", node, frame, parts)

    def item(self, base: Value, key: Value, node: ast.AST, frame: Frame) -> Value:
        """`base[key]`"""
        found = EMPTY
        for each in base.things:
            if isinstance(each, (Sequence, Mapping, Stream)):
                found |= self._item_of(each, key, node, frame)
            elif isinstance(each, Object):
                found |= self.item_of_object(each, key, node, frame)
            elif isinstance(each, (External, Class)):  # `List[int]`, of types
                found |= thing(each)
        if isinstance(base.constant, (tuple, str)) and type(key.constant) is int:
            try:
                return constant(base.constant[key.constant])
            except IndexError:
                return EMPTY
        found = found.left_by(base.carried_by)
        if base.operations or base.constants:
            found |= self.record("getitem", node, frame, [replace(base, things=frozenset()), key])
        return found

    def _item_of(self, container: Any, key: Value, node: ast.AST, frame: Frame) -> Value:
        sliced = key.operation
        if sliced is not None and sliced.name == "builtins.slice" and isinstance(container, Sequence):
            parts = self.parts(thing(container))
            bounds = [each.constant for each in sliced.inputs]
            if parts is not None and all(each is None or type(each) is int for each in bounds):
                return self.sequence(node, parts[slice(*bounds)], kind=container.kind)
            part = self.sequence(node, None, container.element, container.kind, (thing(container),))
            if any(not isinstance(one, (Sequence, Mapping)) for each in container.contents() for one in each.things):
                return part  # layers
            return part | self.record("getitem", node, frame, [thing(container), key])
        return self.entry(container, key, node, frame)

    def item_of_object(self, one: Object, key: Value, node: ast.AST, frame: Frame) -> Value:
        """`data_set[0]`, `layers[i]`"""
        if one.cls is not None and one.cls.find("__getitem__"):
            return self.call(self.attribute(thing(one), "__getitem__", node, frame), node, frame, [key], {})
        return self.record("getitem", node, frame, [thing(one), key], owner=one)

    # comprehensions

    def of_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        parts: list[Value] = []
        exact = self._comprehend(node.generators, node, frame, lambda f: parts.append(self._listed(node, f)))
        kind = {ast.ListComp: "list", ast.SetComp: "set"}.get(type(node), "generator")
        value = self.sequence(node, parts if exact else None, EMPTY if exact else joined(parts), kind)
        for made in value.things:
            made.pick(joined(self.program.at(test) for each in node.generators for test in each.ifs))
            made.pick(joined(picked_by(self.program.at(each.iter)) for each in node.generators))
        return value

    def _listed(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        """An element of a list that is written down so: a number that is the same for all that a loop goes over comes
        once for each of it, `sum(1 for _ in labels)`."""
        value = self.eval(node.elt, frame)
        numbers = value.constants and all(issubclass(kind, (int, float)) for kind, _ in value.constants)
        if value.operations or value.things or not numbers or not any(held(self.region.subject)):
            return value
        return self.record("list.element", node.elt, frame, [value])

    of_SetComp = of_ListComp
    of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp, frame: Frame) -> Value:
        made: Mapping = self.make(node, Mapping)

        def put(inner: Frame) -> None:
            self.put(made, self.eval(node.key, inner), self.eval(node.value, inner))

        self._comprehend(node.generators, node, frame, put)
        return thing(made)

    def _comprehend(
        self, generators: Row[ast.comprehension], node: ast.AST, frame: Frame, finish: Callable[[Frame], None]
    ) -> bool:
        """Run a comprehension. Whether all of its elements are known, one by one."""
        if not generators:
            finish(frame)
            return True
        first, *rest = generators
        over = self.eval(first.iter, frame)
        inner = Frame(frame.source, frame, is_comprehension=True)
        parts = self.unrolled(over) or self._numbered(over, node, frame)
        if parts is None:

            def begin() -> None:
                self.assign(first.target, self.element(over, first.iter, frame), inner)
                self._filtered(first, inner)
                self._comprehend(rest, node, inner, finish)

            self.repeated(first, over, begin, frame, all_of(node, ast.NamedExpr))
            return False
        exact = True
        for number, part in enumerate(parts):
            with self.told_apart(number):
                self.assign(first.target, part, inner)
                kept = self._filtered(first, inner)
                if kept is not False:
                    exact &= self._comprehend(rest, node, inner, finish) and kept is True
        return exact

    def repeated(
        self, node: ast.AST, over: Value, run: Callable[[], object], frame: Frame, binding: Iterable[ast.NamedExpr] = ()
    ) -> None:
        """Run the rounds of a loop within an expression, which may bind names, until they leave nothing else."""
        home, names = frame.home, {each.target.id for each in binding}
        ahead = self.context.ahead.setdefault(node, frozenset(() if is_of_loader(over) else names & home.names.keys()))
        with self.within("loop", node, frame, over) as loop:
            for _ in range(ROUNDS):
                start, noted = dict(home.names), (self.rebindings, len(self.turned))
                with self.round_of(loop):
                    run()
                anew = [name for name in ahead if is_anew(home.names[name], start[name])]
                home.names = carried(merged(start, home.names), loop, anew) if names else home.names
                if home.names == start and noted == (self.rebindings, len(self.turned)):
                    break
        home.names = left(home.names, loop) if names else home.names

    def _numbered(self, over: Value, node: ast.AST, frame: Frame) -> list[Value] | None:
        """The numbers of a short range, for each of which a comprehension makes a module: `[Block() for _ in
        range(3)]`"""
        made, numbers = getattr(node, "elt", None), short_range(over)
        if numbers is None or not isinstance(made, ast.Call) or not isinstance(made.func, (ast.Name, ast.Attribute)):
            return None
        makers = self.eval(made.func, frame).things
        return numbers if makers and all(map(self._makes_module, makers)) else None

    def _makes_module(self, maker: Any) -> bool:
        names = maker.libraries if isinstance(maker, Class) else [getattr(maker, "name", "")]
        return any(each == "copy.deepcopy" or "module" in self.catalog.roles(each) for each in names)

    def _filtered(self, generator: ast.comprehension, frame: Frame) -> bool | None:
        kept: bool | None = True
        for test in generator.ifs:
            value = self.eval(test, frame)
            known = folding.truth(value)
            if known is False:
                return False
            if known is None:
                self.tested(test, value)
            kept = kept if known else None
        return kept

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind a name, an attribute, an entry, or several."""
        raise NotImplementedError

    def unrolled(self, over: Value) -> list[Value] | None:
        """The elements of what a loop goes over, if it is run for each apart."""
        raise NotImplementedError


def short_range(over: Value) -> list[Value] | None:
    """The numbers of a range, if these are few."""
    ranges = [each for each in over.things if isinstance(each, Sequence) and each.kind == "range"]
    return ranges[0].parts if len(ranges) == 1 else None
