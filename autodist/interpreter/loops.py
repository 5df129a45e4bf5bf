"""Loops and comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from autodist.interpreter.contents import UNROLLED
from autodist.interpreter.events import Loop
from autodist.interpreter.questions import (
    adds_to,
    is_hashable,
    is_mixed,
    is_set,
    joined,
    last_part,
)
from autodist.interpreter.stores import Stores
from autodist.source import all_of, argument, bound_each_time, counted_of, first_index, told_once, walk
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SAME, Spread
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    Draw,
    External,
    Index,
    Items,
    Object,
    Parameters,
    Scope,
    Table,
    Turn,
    Value,
    constant,
    drawn_by_evaluation,
    drawn_from,
    of,
    stored,
    union,
)


class Loops(Stores):
    """What runs once for each element."""

    def do_For(self, node: ast.For | ast.AsyncFor, scope: Scope) -> bool:
        iterable = self.eval(node.iter, scope)
        self.event("iterate", node, scope, iterable)
        if is_set(iterable):
            self.event("ordered", node.iter, scope, iterable)
        function = self._calls[-1].function if self._calls else None
        taken = node.iter in self.plan.turns
        by_row, certain = taken or self._goes_row_by_row(node.iter), taken or self._goes_along_tensors(node.iter)
        certain = certain or by_row and self._numbers_rows(node.iter, node.target, node.body, scope)
        if not by_row and self._goes_through_batches(node.iter, node.target, node.body, scope):
            by_row = certain = True
        loop = Loop(node, scope.source, scope, function, by_row, certain)
        parts = None if taken else self._unrolled(iterable) or self._numbered_phases(node.iter)
        self.counted_loops.discard(node.iter)
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
            if taken:
                element = self._taken(element, node, scope)

            def bind() -> None:
                self.assign(node.target, element, scope, node.iter)
                self._share_items(node.target, node.iter, scope)
                if certain:
                    self._mark_turn(node, scope)

            self._repeat(node.body, scope, bind, bound_each_time(node) if any(drawn_from(iterable)) else ())
        self._loops.pop()
        if certain:
            self.counted_loops.add(node.iter)
        self.block(node.orelse, scope)
        return False

    do_AsyncFor = do_For

    def _is_of_model(self, value: Value) -> bool:
        return self._modules_in(value) or any(isinstance(t, Parameters) for t in value.things)

    def _goes_row_by_row(self, over: ast.expr) -> bool:
        """`for label, guess in zip(labels, guesses.tolist())`, of this rank's samples."""
        if isinstance(over, ast.Call) and last_part(over.func) in ("zip", "enumerate", "tqdm"):
            return any(map(self._goes_row_by_row, over.args))
        if isinstance(over, ast.Call) and last_part(over.func) == "range":
            return bool(over.args) and self._counts_samples(over.args[min(1, len(over.args) - 1)])
        value = self._lately(over)
        if _has_one_each(value):
            return True
        if value.spread is not ROWS or value.things:
            return self.splits_by_number(over)
        if self._takes_pieces(over, value):
            return False
        return not value.models or self.gives_tensor(over, value)  # a model may give several outputs

    def _goes_through_batches(self, over: ast.expr, target: ast.expr, body: Iterable[ast.AST], scope: Scope) -> bool:
        """Whether a loop that takes as many samples as the loader is told takes those of tensors of a rank's share:
        `for i in range(batch_size): loss += criterion(out[i], y[i])`."""
        shared = list[bool]()
        ranges = isinstance(over, ast.Call) and last_part(over.func) == "range"
        if not ranges or not isinstance(over, ast.Call) or not over.args or not isinstance(target, ast.Name):
            return False
        from_zero = [getattr(each, "value", None) for each in over.args[:-1]] in ([], [0])
        told = last_part(over.args[-1]) if isinstance(over.args[-1], (ast.Name, ast.Attribute)) and from_zero else ""
        for _, held in _indexed_by(target, body, scope):
            loaders = [t for t in held.origins if isinstance(t, Object) and "loader" in t.roles]
            sizes = [argument(t.node, "batch_size", 1) for t in loaders if isinstance(t.node, ast.Call)]
            sizes += [t.size for t in held.origins if isinstance(t, Draw) and self.plan.shares(t.node)]
            if told and not held.things and told in map(last_part, filter(None, sizes)):
                shared.append(held.spread is ROWS)
        if shared:
            (self.batch_loops if all(shared) else self.whole_loops).add(over)
        return bool(shared) and all(shared)

    def _counts_samples(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether it is the number of this rank's samples, or follows it: `x.size(0)`, `n // 4` with `n = len(x)`. Of
        what a model gives, `len` may count outputs."""
        if node in self.plan.counts:
            return True
        base = counted_of(node)
        if base is not None:
            told = self._lately(node).spread is COUNT
            return self._goes_row_by_row(base) if last_part(node) == "len" else told
        if isinstance(node, ast.BinOp):
            return self._counts_samples(node.left, depth)
        value = self._lately(node)
        made = [each for _, each in value.made] if isinstance(node, ast.Name) and depth else []
        shaped = value.spread is COUNT and all(last_part(each) in ("shape", "size") for each in made)
        return bool(made) and (shaped or all(self._counts_samples(each, depth - 1) for each in made))

    def _goes_along_tensors(self, over: ast.expr) -> bool:
        """Whether it is certain that a loop takes one sample after the other, and not what a batch has several of."""
        if isinstance(over, ast.Call) and last_part(over.func) in ("zip", "enumerate", "tqdm"):
            return any(map(self._goes_along_tensors, over.args))
        if isinstance(over, ast.Call) and last_part(over.func) == "range":
            return self._goes_row_by_row(over)
        value = self._lately(over)
        one = value.spread is ROWS and not value.things and self.gives_tensor(over, value)
        return one or self.splits_by_number(over) or _has_one_each(value)

    def _numbers_rows(self, over: ast.expr, target: ast.expr, body: Iterable[ast.AST], scope: Scope) -> bool:
        """Whether the numbers that a loop gives what it goes over are those of rows of a tensor, so that it goes over
        samples: `for i, label in enumerate(labels): loss += criterion(out[i], label)`."""
        numbered = isinstance(over, ast.Call) and last_part(over.func) == "enumerate" and len(over.args) == 1
        if not numbered or not isinstance(target, ast.Tuple) or not isinstance(target.elts[0], ast.Name):
            return False
        return any(
            held.spread is ROWS and not held.things and held.models and self.gives_tensor(name, held)
            for name, held in _indexed_by(target.elts[0], body, scope)
        )

    def _taken(self, element: Value, loop: ast.For | ast.AsyncFor | ast.comprehension, scope: Scope) -> Value:
        """One of the samples that a rank takes of those that all ranks could go over."""
        draw = Draw(loop.iter, scope.source, (), turn=True, even=self.plan.even)
        self.event("taken", loop.iter, scope, of(draw))
        return self._of_one_sample(element, frozenset([draw, Turn(loop)]), loop)

    def _of_one_sample(self, value: Value, origins: frozenset[Any], loop: ast.AST, at: tuple[int, ...] = ()) -> Value:
        """Whatever is known of a sample, it is this rank's."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        if not tuples:
            return Value(spread=LOCAL, origins=origins)
        items = self._remember(loop, lambda: Items(loop, [], NOTHING), ("taken", *at))
        parts = [
            union(t.parts[i] for t in tuples if i < len(t.parts)) for i in range(max(len(t.parts) for t in tuples))
        ]
        items.parts = [self._of_one_sample(part, origins, loop, (*at, i)) for i, part in enumerate(parts)]
        return of(items)

    def _mark_turn(self, loop: ast.For | ast.AsyncFor | ast.comprehension, scope: Scope) -> None:
        """Keep of the names of a loop that they are those of one sample after the other."""
        turn = Turn(loop, any(map(self.splits_by_number, walk(loop.iter))))
        for name in (each.id for each in all_of(loop.target, ast.Name)):
            value = scope.names.get(name, NOTHING)
            if value.spread is ROWS and not value.things:
                value = value.but(origins=value.origins | {turn})
                scope.names[name] = value

    def _counts_rows_of(self, target: ast.expr) -> bool:
        """Whether a loop over this rank's samples, one by one, adds to what was there before it."""
        root = target
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        within = self._calls[-1].function.node if self._calls else None
        for loop in self._loops:
            home = loop.function.node if loop.function is not None else None
            if isinstance(target, ast.Name) and home is not within:
                continue  # a variable of a function that the loop calls
            if loop.by_row and isinstance(loop.node, ast.For):
                return getattr(root, "id", "") not in _begun_in(loop.node)
        return False

    def _note_row_by_row(self, target: ast.expr, scope: Scope) -> None:
        """`for user in users: items.append(draw(user))`: a list of the rows of a batch that is made by hand."""
        if self.plan.draws and not self._no_grad and isinstance(target, ast.Name) and self._counts_rows_of(target):
            home = scope.find(target.id)
            if home is not None:
                home.names[target.id] = home.names[target.id].but(spread=ROWS)

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
            if is_mixed(parts) and lists[0].element is NOTHING:
                return list(parts)
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
            taken = first.iter in self.plan.turns
            by_row, certain = taken or self._goes_row_by_row(first.iter), self._goes_along_tensors(first.iter)
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            made += [test for each in node.generators for test in each.ifs]
            certain = certain or by_row and self._numbers_rows(first.iter, first.target, made, inner)
            if not by_row and self._goes_through_batches(first.iter, first.target, made, inner):
                by_row = certain = True
            self._loops.append(Loop(first, scope.source, scope, function, by_row, certain))
            told = self._unrolled(iterable) or [*self._fields(iterable).values()] or self._data_sets(iterable)
            parts = None if taken else told or self._numbered_phases(first.iter)
            one = self._element(iterable, first) if parts is None else NOTHING
            one = self._taken(one, first, scope) if taken else one
            result = NOTHING
            for number, element in enumerate(parts if parts is not None else [one]):
                self.assign(first.target, element.but(firm=True) if parts is not None else element, inner, first.iter)
                if parts is None and certain:
                    self._mark_turn(first, inner)
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
        items = self._remember(node, lambda: Items(node, [], NOTHING, stored(scope.source, [node.elt])))

        tests = [test for generator in node.generators for test in generator.ifs]

        parts: list[Value] = []

        def finish(inner: Scope) -> Value:
            value = self.eval(node.elt, inner)
            parts.append(value)
            for test in tests:
                value = self._of_class(value, node.elt, test)
                value = self._chosen(value, [(test, self._lately(test))], scope, node.generators[-1])
            value = self._as_row(value)
            if value.spread is MEAN and self._is_each(value, node.elt):
                value = value.but(spread=ROWS).without(Turn)  # `[criterion(o, t) for o, t in zip(out, targets)]`
            items.element = items.element | value
            counted = all(isinstance(t, Index) for t in value.things) and not tests
            if items.numbers is None and counted and not value.spread.is_local:
                items.numbers = self._numbered(node.elt)
            return value

        iterables: list[Value] = []
        element = self._comprehension(node, scope, finish, iterables)
        alone = len(node.generators) == 1 and not tests
        phases = self._data_sets(iterables[0]) or self._numbered_phases(node.generators[0].iter)
        phases = phases or self._named_phases(iterables[0])
        if alone and (self._fields(iterables[0]) or phases is not None and len(phases) == len(parts)):
            items.parts, items.element = parts, NOTHING  # `x, y = [part.to(device) for part in batch]`
            return of(items)
        if alone and isinstance(node, ast.ListComp) and len(parts) == len(_pairs(iterables[0])):
            items.parts, items.element = parts, NOTHING  # `[a + b for a, b in zip(sums, args)]`
            return of(items)
        items.by_row = len(node.generators) == 1 and not tests and self._goes_row_by_row(node.generators[0].iter)
        items.by_layer = all(self._goes_over_parts(generator.iter) for generator in node.generators)
        parameters = frozenset(replace(t, one=False) for t in element.things if isinstance(t, Parameters))
        over = iterables[0]
        spread = over.spread if over.spread in (ROWS, Spread.COLUMNS) else SAME
        sampled = over.origins | element.origins
        if not element.spread.is_local and not spread.is_local:
            return Value(frozenset([items]) | parameters, origins=sampled, models=element.models)
        return Value(frozenset([items]) | parameters, ROWS if spread.is_local else SAME, sampled, element.models)

    def _goes_over_parts(self, over: ast.expr) -> bool:
        """`[head(x) for head in self.heads]`: as many on all ranks, whatever their samples are."""
        value = self._lately(over)
        if value.spread.is_local or self.holds_local(value):
            return False
        told = (
            isinstance(t, Items) and t.is_told or isinstance(t, Object) and "module" in t.roles for t in value.things
        )
        return bool(self._forward) or bool(value.things) and all(told)

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
            if not self._forward and self._is_of_samples(key):  # `{n: loss for n, loss in zip(numbers, losses)}`
                self._note_samples_of(table, key)
            if key.const is not UNKNOWN and is_hashable(key.const):
                table.entries[key.const] = value
            else:
                table.element = table.element | value
            return NOTHING

        self._comprehension(node, scope, finish, [])
        return of(table)


@told_once
def _indexed_in(part: ast.AST) -> list[ast.Subscript]:
    """What code reads or writes by an index."""
    return list(all_of(part, ast.Subscript))


def _indexed_by(number: ast.Name, body: Iterable[ast.AST], scope: Scope) -> Iterator[tuple[ast.Name, Value]]:
    """What the body of a loop takes by the ``number`` of its round, on the first axis, and what that holds."""
    for each in (inner for part in body for inner in _indexed_in(part)):
        first = first_index(each)
        if isinstance(first, ast.Name) and first.id == number.id and isinstance(each.value, ast.Name):
            home = scope.find(each.value.id)
            yield each.value, home.names[each.value.id] if home is not None else NOTHING


@told_once
def _begun_in(loop: ast.For) -> frozenset[str]:
    """The names in what the body of a loop binds, and does not merely add to."""
    inside = (n for statement in loop.body for n in all_of(statement, ast.Assign))
    targets = (target for each in inside if not adds_to(each) for target in each.targets)
    return frozenset(each.id for target in targets for each in all_of(target, ast.Name))


def _is_named_phase(value: Value) -> bool:
    """`"train"`, `("train", 1)`"""
    told = [value, *(part for t in value.things if isinstance(t, Items) for part in t.parts)]
    return any(isinstance(each.const, str) for each in told)


def _has_one_each(value: Value) -> bool:
    """Whether it is a list of as many as a rank has samples: `[(t, loss) for t, loss in zip(times, losses)]`."""
    return bool(value.things) and all(isinstance(each, Items) and each.by_row for each in value.things)


def _pairs(value: Value) -> list[Value]:
    """What `zip` gives of lists that are known in full."""
    lists = [t for t in value.things if isinstance(t, Items)]
    zipped = len(lists) == 1 == len(value.things) and isinstance(lists[0].node, ast.Call)
    return lists[0].parts if zipped and last_part(lists[0].node.func) == "zip" else []  # type: ignore[attr-defined]
