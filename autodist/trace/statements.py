"""Statements: what a block does to names, and how it is left."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from collections.abc import Sequence as Row
from dataclasses import replace
from functools import cached_property, reduce
from itertools import takewhile
from typing import Any

from autodist.program import EMPTY, Region, Value, constant, joined
from autodist.source import all_of, bound_each_time, walk
from autodist.trace import folding
from autodist.trace.containers import UNROLLED
from autodist.trace.expressions import ROUNDS, Expressions, short_range
from autodist.trace.machine import changes_in_place
from autodist.trace.names import thing
from autodist.trace.things import (
    Class,
    External,
    Frame,
    Function,
    Mapping,
    Object,
    Sequence,
    Stream,
    carried,
    is_anew,
    is_of_loader,
    kept_by,
    left,
    merged,
)

Names = dict[str, Value]


class Statements(Expressions):
    """Statements of every kind but imports."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._jumps: list[tuple[list[Names], list[Names]]] = []
        """The names at each `continue` and `break` of the loops around."""

    def block(self, body: Row[ast.stmt], frame: Frame) -> bool:
        """Run statements. Whether their end is reached."""
        for statement in body:
            self.tick()
            handler = self._doers.get(type(statement))
            if handler is None:
                handler = self._doers[type(statement)] = getattr(self, "do_" + type(statement).__name__, self._do_other)
            if handler(statement, frame) is False:
                return False
        return True

    @cached_property
    def _doers(self) -> dict[type[ast.stmt], Callable[[Any, Frame], bool | None]]:
        return {}

    def _do_other(self, node: ast.stmt, frame: Frame) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.expr):
                self.eval(each, frame)

    def do_Expr(self, node: ast.Expr, frame: Frame) -> None:
        self.eval(node.value, frame)

    def do_Pass(self, node: ast.Pass, frame: Frame) -> None:
        """Nothing."""

    def do_Return(self, node: ast.Return, frame: Frame) -> bool:
        value = self.eval(node.value, frame) if node.value is not None else constant(None)
        if self.endings:
            self.endings[-1].returned.append(value)
        return False

    def do_Raise(self, node: ast.Raise, frame: Frame) -> bool:
        for each in (node.exc, node.cause):
            if each is not None:
                self.eval(each, frame)
        return False

    def do_Continue(self, node: ast.Continue, frame: Frame) -> bool:
        if self._jumps:
            self._jumps[-1][0].append(dict(frame.names))
        return False

    def do_Break(self, node: ast.Break, frame: Frame) -> bool:
        if self._jumps:
            self._jumps[-1][1].append(dict(frame.names))
        within = [*takewhile(lambda each: each.kind != "loop", reversed(self.guards))]
        for loop in self.guards[: len(self.guards) - len(within)][-1:]:
            if isinstance(loop.node, ast.While):  # which goes on by this test as by its own
                loop.subject |= joined(each.subject for each in within)
        return False

    def do_Delete(self, node: ast.Delete, frame: Frame) -> None:
        for each in (each for each in node.targets if not isinstance(each, ast.Name)):
            self._do_other(node, frame)
            self.delete_entry(each, frame)

    # binding

    def do_Assign(self, node: ast.Assign, frame: Frame) -> None:
        self.begin_anew(node.targets[0], node.value, frame)
        value = self.eval(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)

    def do_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, frame), frame)

    def do_AugAssign(self, node: ast.AugAssign, frame: Frame) -> None:
        before = self.eval(node.target, frame)
        value = self.eval(node.value, frame)
        for each in before.things:
            if isinstance(each, Sequence) and isinstance(node.op, ast.Add):
                each.stores[node] = self.region
                self.extend(each, value, node.value, frame)
                if not before.operations:
                    return
            if isinstance(each, Mapping) and isinstance(node.op, (ast.Add, ast.BitOr)):  # `counter += other`
                self._take_over(each, value)
                return
        own = f"__i{folding.NAMES[type(node.op)]}__"
        owners = [each for each in before.things if isinstance(each, Object) and each.cls and each.cls.find(own)]
        if owners and not before.operations:  # `meter += loss`, of a class that says what this does
            methods = (self.attribute(thing(each), own, node, frame) for each in owners)
            self.assign(node.target, joined(self.call(each, node, frame, [value], {}) for each in methods), frame)
            return
        result = self.binary(node, node.op, before, value, frame)
        held = Value(frozenset(each for each in before.operations if changes_in_place(each)))
        if held.operations and not isinstance(node.target, ast.Subscript):
            self.change_viewed(held, result, node, frame)
        self.assign(node.target, result, frame)

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind a name, an attribute, an entry, or several."""
        if isinstance(target, ast.Name):
            self.bind_name(target.id, value, frame)
            self.program.values[target] = self.program.at(target) | value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.sequence(target, None, self.element(value, target, frame)), frame)
        elif isinstance(target, ast.Attribute):
            self.store_attribute(self.eval(target.value, frame), target.attr, value, target, frame)
        elif isinstance(target, ast.Subscript):
            base, key = self.eval(target.value, frame), self.eval(target.slice, frame)
            for each in base.things:
                self._store_item(each, key, value, target, frame)
            if base.operations:
                self.assign_result(target, base, [key, value], "setitem", frame)

    def assign_result(self, target: ast.Subscript, base: Value, given: Row[Value], name: str, frame: Frame) -> None:
        """What a tensor holds after some of its numbers have been changed in place."""
        changed = self.record(name, target, frame, [Value(base.operations), *given])
        self.change_viewed(base, changed, target, frame)
        home = target.value
        if isinstance(home, (ast.Name, ast.Attribute)):
            self.assign(home, changed | Value(constants=base.constants, things=base.things), frame)

    def _store_item(self, one: Any, key: Value, value: Value, node: ast.Subscript, frame: Frame) -> None:
        if isinstance(one, Object) and one.cls is not None and one.cls.find("__setitem__"):
            self.call(self.attribute(thing(one), "__setitem__", node, frame), node, frame, [key, value], {})
        elif isinstance(one, Object):
            self.bind(one, one.attributes, ("entry", key.constant), value)
            self.put_layer(one, key.constant, value)
            self.record("setitem", node, frame, [thing(one), key, value], tag=one)
        else:
            self.store_entry(one, key, value, node, frame)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, frame: Frame) -> None:
        count = len(target.elts)
        stars = [at for at, each in enumerate(target.elts) if isinstance(each, ast.Starred)]
        told = [each for each in value.things if len(self.parts(thing(each)) or ()) == count]
        if told and all(each.is_tensor for each in value.operations):  # which are of another branch, as are loaders
            pairs = frozenset(each for each in value.things if "loader" not in getattr(each, "roles", ()))
            value = replace(value, operations=frozenset(), things=pairs)
        parts = [each.left_by(value.carried_by) for each in self.parts(value) or []] or None
        if parts is not None and stars and len(parts) >= count - 1:
            at, after = stars[0], len(parts) - (count - 1 - stars[0])
            parts = [*parts[:at], self.sequence(target.elts[at], parts[at:after]), *parts[after:]]
            for each, part in zip(target.elts, parts, strict=True):
                self.assign(each.value if isinstance(each, ast.Starred) else each, part, frame)
            return
        for place, each in enumerate(target.elts):
            if parts is not None and len(parts) == count:
                self.assign(each, parts[place], frame)
            elif stars and place > stars[0]:
                self.assign(each, self._nth(value, place - count, target, frame), frame)
            else:
                self.assign(each, self._nth(value, place, target, frame), frame)

    def _nth(self, value: Value, place: int, node: ast.AST, frame: Frame) -> Value:
        """What stands at a place of what may be one of several things."""
        found = EMPTY
        for each in value.things:
            if isinstance(each, (Sequence, Stream)):
                parts = self.parts(thing(each))
                told = parts is not None and -len(parts) <= place < len(parts)
                found |= parts[place] if parts is not None and told else each.element
            elif isinstance(each, Object):
                found |= self.item_of_object(each, constant(place), node, frame)
            else:
                found |= self.element_of(each, node, frame)
        found = found.left_by(value.carried_by)
        if value.operations:
            found |= self.record("getitem", node, frame, [value.results, constant(place)], tag=place)
        return found

    # branches

    def do_If(self, node: ast.If, frame: Frame) -> bool:
        test = self.eval(node.test, frame)
        known = self.decided(node.test, test, frame)
        if known is not None:
            return self.block(node.body if known else node.orelse, frame)
        self.tested(node.test, test)
        before = frame.names
        frame.names = dict(before)
        self._narrow(node.test, True, frame)
        arms: list[Region] = []
        since = self.bindings
        with self.within("branch", node.body[0], frame, test) as arm:
            falls = self.block(node.body, frame)
        arms += [arm] * falls
        after = frame.names
        frame.names = dict(before)
        self._narrow(node.test, False, frame)
        if node.orelse:
            with self.within("branch", node.orelse[0], frame, test) as arm:
                other = self.block(node.orelse, frame)
            arms += [arm] * other
            self.bound_in_all(arms, since)
        else:
            other = True
        if falls and other:
            names = sorted(after.keys() & frame.names.keys()) if test.operations or test.carried_by else ()
            told = {name: self.chosen(after[name], frame.names[name], test, node, frame, name) for name in names}
            frame.names = merged(after, frame.names) | {name: each for name, each in told.items() if each}
        elif falls:
            frame.names = after
        return falls or other

    def _narrow(self, test: ast.expr, holds: bool, frame: Frame) -> None:
        """In the branch where `x is not None` holds, `x` is not None."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._narrow(test.operand, not holds, frame)
            return
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
            for each in test.values:
                self._narrow(each, holds, frame)
            return
        name = test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            if not (isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None):
                return
            name, holds = test.left, holds is isinstance(test.ops[0], ast.IsNot)
        if isinstance(name, ast.Name) and holds and name.id in frame.names:
            frame.names[name.id] = folding.without_none(frame.names[name.id])

    def do_Match(self, node: ast.Match, frame: Frame) -> bool:
        subject = self.eval(node.subject, frame)
        self.tested(node.subject, subject)
        before, ways = frame.names, []
        for case in node.cases:
            frame.names = dict(before)
            with self.within("branch", case, frame, subject):
                for each in walk(case.pattern):
                    if isinstance(each, (ast.MatchAs, ast.MatchStar)) and each.name:
                        frame.names[each.name] = subject
                if self.block(case.body, frame):
                    ways.append(frame.names)
        frame.names = reduce(merged, ways, before)
        return True

    def do_Try(self, node: ast.Try, frame: Frame) -> bool:
        before = dict(frame.names)
        with self.within("try", node, frame):
            falls = self.block(node.body, frame) and self.block(node.orelse, frame)
        after, ways = frame.names, []
        for handler in node.handlers:
            frame.names = merged(before, after)
            with self.within("branch", handler, frame, self.taken_in(node.body)):
                if handler.type is not None:
                    self.eval(handler.type, frame)
                if handler.name:
                    frame.names[handler.name] = self.record("exception", handler, frame)
                if self.block(handler.body, frame):
                    ways.append(frame.names)
        ways += [after] if falls else []
        frame.names = reduce(merged, ways) if ways else merged(before, after)
        return self.block(node.finalbody, frame) and bool(ways)

    do_TryStar = do_Try

    def do_With(self, node: ast.With | ast.AsyncWith, frame: Frame) -> bool:
        return self._with(node.items, node.body, frame)

    do_AsyncWith = do_With

    def _with(self, items: Row[ast.withitem], body: Row[ast.stmt], frame: Frame) -> bool:
        if not items:
            return self.block(body, frame)
        first, *rest = items
        manager = self.eval(first.context_expr, frame)
        if first.optional_vars is not None:
            entered = self._entered_by(manager, first.context_expr, frame)
            self.assign(first.optional_vars, entered, frame)
        with self.within("with", first, frame, manager):
            return self._with(rest, body, frame)

    def _entered_by(self, manager: Value, node: ast.AST, frame: Frame) -> Value:
        found = EMPTY
        for each in manager.things:
            if isinstance(each, Object) and each.cls is not None and each.cls.find("__enter__"):
                found |= self.call(self.attribute(thing(each), "__enter__", node, frame), node, frame, [], {})
            elif isinstance(each, Stream):  # of a generator below `@contextmanager`
                found |= each.element
            else:
                found |= thing(each)
        return found | Value(manager.operations, manager.constants)

    def do_Assert(self, node: ast.Assert, frame: Frame) -> None:
        self.tested(node.test, self.eval(node.test, frame))

    # loops

    def do_For(self, node: ast.For | ast.AsyncFor, frame: Frame) -> bool:
        over = self.eval(node.iter, frame)
        parts = self.unrolled(over) or self._places(node, over, frame)
        if parts is not None or (words := self.words_of(over)):
            return self._each_apart(node, words if parts is None else parts, frame, certain=parts is not None)
        with self.visiting(node, frame) as visit:

            def begin() -> None:
                if visit is not None:
                    visit.after = None
                self.assign(node.target, self.element(over, node.iter, frame), frame)

            return self._repeat(node, over, begin, frame, sure=bound_each_time(node) if is_of_loader(over) else ())

    do_AsyncFor = do_For

    def _places(self, node: ast.For | ast.AsyncFor, over: Value, frame: Frame) -> list[Value] | None:
        """The numbers of a short range, by which a loop looks modules up: `for i in range(3): x = self.layers[i](x)`"""
        numbers = short_range(over)
        if not numbers or not isinstance(node.target, ast.Name):
            return None
        looked_up = (each for each in all_of(node, ast.Subscript) if getattr(each.slice, "id", "") == node.target.id)
        lists = (each.value for each in looked_up if isinstance(each.value, (ast.Name, ast.Attribute)))
        held = (thing for each in lists for thing in self.eval(each, frame).things)
        return numbers if any(isinstance(each, Object) and "module" in each.roles for each in held) else None

    def do_While(self, node: ast.While, frame: Frame) -> bool:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)

        def test() -> None:
            asked = self.eval(node.test, frame)
            self.region.subject |= asked
            self.tested(node.test, asked)

        return self._repeat(node, EMPTY, test, frame, endless)

    def _repeat(
        self,
        node: Any,
        over: Value,
        begin: Callable[[], None],
        frame: Frame,
        endless: bool = False,
        sure: Collection[str] = (),
    ) -> bool:
        """Run the body of a loop until its names change no more. It runs once at least where some names are ``sure`` to
        be bound in it: they no longer hold what they held before. Met again in the same context, as a loop within a
        loop is, it goes on from the names of its last round."""
        breaks: list[Names] = []
        ahead = self.context.ahead.setdefault(node, frozenset(() if is_of_loader(over) else frame.names))
        frame.names = self._as_left(node, frame.names)
        with self.within("loop", node, frame, over) as loop:
            for _ in range(ROUNDS):
                start, kept, changed = dict(frame.names), kept_by(frame.names), dict(self.changed)
                noted = self.rebindings
                self._jumps.append(([], []))
                with self.round_of(loop):
                    begin()
                    falls = self.block(node.body, frame)
                continues, breaks = self._jumps.pop()
                ends = [start, *([frame.names] if falls else []), *continues]
                names = reduce(merged, ends)
                anew = [name for name in ahead if any(is_anew(end[name], start[name]) for end in ends[1:])]
                frame.names = names = carried(names, loop, anew)
                same = names == start and noted == self.rebindings
                if same and kept == kept_by(names) and changed == self.changed:
                    break
            self.context.loops[node] = names
            rounds = [*ends[1:], *breaks]
            frame.names |= {name: joined(each[name] for each in rounds if name in each) for name in sure if rounds}
        falls = not endless or bool(breaks)
        if node.orelse:
            self.block(node.orelse, frame)
        frame.names = left(reduce(merged, breaks, frame.names), loop)
        return falls

    def _as_left(self, loop: ast.AST, names: Names) -> Names:
        """The names with which a loop begins, and with which it ended when it was run before; what was computed in it
        has not been changed in place yet."""
        last = self.context.loops.get(loop, names)
        for name, value in last.items():
            for each in value.operations.difference(names.get(name, EMPTY).operations):
                self.changed.pop(each, None)
        return merged(names, last)

    def _each_apart(self, node: ast.For | ast.AsyncFor, parts: Row[Value], frame: Frame, certain: bool) -> bool:
        """Run the body of a loop for each element of a literal list, or for those that it may have."""
        frame.told_apart |= {each.id for each in walk(node.target) if isinstance(each, ast.Name)}
        for number, part in enumerate(parts if certain else [*parts, *parts]):
            self._jumps.append(([], []))
            before = [] if certain else [dict(frame.names)]
            with self.told_apart((node, number % len(parts))):
                self.assign(node.target, part, frame)
                falls = self.block(node.body, frame)
            continues, left = self._jumps.pop()
            ways = [*before, *([frame.names] if falls else []), *continues, *left]
            if not ways:
                return False
            frame.names = reduce(merged, ways)
            if left and not falls and not continues:
                break
        return self.block(node.orelse, frame)

    def unrolled(self, over: Value) -> list[Value] | None:
        """The elements of what a loop goes over, if it is run for each apart: words, layers, tuples of them."""
        parts = self.parts(over) or self.keys_of(over)
        if parts is None or not 0 < len(parts) <= UNROLLED or over.is_constant and not isinstance(over.constant, tuple):
            return None
        told = [each.constant if isinstance(each.constant, tuple) else (each.constant,) for each in parts]
        words = any(isinstance(one, str) for each in told for one in each)
        return parts if words or any(each.things for each in parts) else None

    # definitions

    def do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> None:
        function: Function = self.make(node, lambda n, g: Function(node, frame))
        function.frame = frame
        for default in (*node.args.defaults, *node.args.kw_defaults):
            value = self.eval(default, frame) if default is not None else EMPTY
            if isinstance(default, (ast.Call, ast.List, ast.Dict)):
                function.made[default] = value
        made = thing(function)
        for decorator in reversed(node.decorator_list):
            made = self._decorated(decorator, function, made, frame)
        self.bind_name(node.name, made, frame)

    do_AsyncFunctionDef = do_FunctionDef

    def _decorated(self, decorator: ast.expr, function: Function | Class, made: Value, frame: Frame) -> Value:
        """What a decorator makes of a function. Those of libraries leave it as it is."""
        value = self.eval(decorator, frame)
        if isinstance(function, Function) and self.is_quiet(value):
            function.role = function.role or "no_grad"
        for each in value.things:
            name = each.name if isinstance(each, External) else ""
            short = name.rpartition(".")[2]
            if isinstance(function, Function) and short in (
                "staticmethod",
                "classmethod",
                "property",
                "cached_property",
            ):
                function.role = "property" if short == "cached_property" else short
            elif isinstance(each, (Function, Class, Object)) and not isinstance(function, Class):
                given = self.call(thing(each), decorator, frame, [made], {})
                made = given if given.things or given.operations else made
            elif isinstance(each, Function):
                self.call(thing(each), decorator, frame, [made], {})
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter"):
            return frame.names.get(getattr(function.node, "name", ""), made)
        return made

    def do_ClassDef(self, node: ast.ClassDef, frame: Frame) -> None:
        bases = [thing_ for each in node.bases for thing_ in self.eval(each, frame).things]
        keywords = {each.arg: self.eval(each.value, frame) for each in node.keywords if each.arg is not None}
        inner = Frame(frame.source, frame, is_class=True)
        cls: Class = self.make(node, lambda n, g: Class(node, inner, ()))
        cls.bases = tuple(each for each in bases if isinstance(each, (Class, External)))
        cls.frame = inner
        self.block(node.body, inner)
        for value in inner.names.values():
            for each in value.things:
                if isinstance(each, Function) and each.frame is inner:
                    each.defined_in = cls
        made = thing(cls)
        told = cls.find("__init_subclass__", after=cls)
        if told is not None:  # a base is told of it: `def __init_subclass__(cls): registry[cls.__name__] = cls`
            self.call(told[1], node, frame, [made], keywords)
        for decorator in reversed(node.decorator_list):
            made = self._decorated(decorator, cls, made, frame)
        self.bind_name(node.name, made, frame)

    def store_attribute(self, base: Value, name: str, value: Value, node: ast.AST, frame: Frame) -> None:
        """`base.name = value`"""
        raise NotImplementedError

    def put_layer(self, one: Object, place: object, value: Value) -> None:
        """Have a container of layers hold another one: `model.body[0] = nn.Linear(8, 8)`"""
        raise NotImplementedError
