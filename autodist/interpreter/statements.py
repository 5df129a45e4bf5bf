"""Running blocks and statements."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

from autodist import carried
from autodist.interpreter.arithmetic import Arithmetic, is_counted_in
from autodist.interpreter.lasting import Lasting
from autodist.interpreter.loops import Loops
from autodist.interpreter.questions import adds_to, is_of_one, spine
from autodist.interpreter.stores import Stores
from autodist.source import last_name, stepped_tensor, walk
from autodist.spread import CROSS, LOCAL, MEAN, ROWS, SAME, SUM
from autodist.values import (
    NOTHING,
    UNKNOWN,
    External,
    Items,
    Object,
    Parameters,
    Scope,
    Table,
    Value,
    constant,
    of,
    union,
)


class Statements(Loops, Arithmetic, Stores, Lasting):
    """Blocks, and the statements that no other module is about."""

    def block(self, body: Iterable[ast.stmt], scope: Scope) -> bool:
        """Run statements; True if control leaves the block early."""
        return any(self.statement(statement, scope) for statement in body)

    def statement(self, node: ast.stmt, scope: Scope) -> bool:
        """Run one statement; True if control leaves the block here."""
        self._tick()
        self.executed.add(node)
        if type(node) not in self._executors:
            self._executors[type(node)] = getattr(self, "do_" + type(node).__name__, None)
        handler = self._executors[type(node)]
        left = bool(handler(node, scope)) if handler is not None else False
        self._hands_on(node, scope)
        for target in self.plan.wraps.get(node, ()):
            held = self.values.get(target)
            planned = self._planned(target, self.eval(target, scope))
            self.assign(target, planned, scope, None)
            if held is not None and isinstance(getattr(target, "ctx", None), ast.Load):
                self.values[target] = held  # in `model.double()`, which comes before
            self.event("wrapped", target, scope, planned)
        return left

    @cached_property
    def _executors(self) -> dict[type[ast.stmt], Callable[[Any, Scope], object] | None]:
        """How each kind of statement is run that has been met so far; some say nothing."""
        return {}

    def do_Expr(self, node: ast.Expr, scope: Scope) -> None:
        value = self.eval(node.value, scope)
        if isinstance(node.value, ast.Call):
            self.event("discarded", node.value, scope, value)
            if (stepped := stepped_tensor(node.value)) is not None:
                self._note_own_step(node.value, self._lately(stepped), scope)

    def _note_own_step(self, node: ast.AST, before: Value, scope: Scope) -> None:
        """A tensor that is in no module is changed by its own gradient, which nothing averages."""
        stepped = stepped_tensor(node)
        known = stepped is not None and (self._lately(stepped) | before)
        if known and not known.spread.is_local and not self._forward:
            if not any(isinstance(t, Parameters) for t in known.things):
                self.event("loose_step", node, scope, known)

    def do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self._made(self.eval(node.value, scope), node.value, scope)
        value = self._loaded(node, value, scope)
        one = value.spread is not MEAN or is_of_one(node.value) or self.is_by_turn(value)
        one = one and value.spread is not CROSS  # it meets the others of the batch
        if value.spread.is_local and one and adds_to(node) and self._counts_rows_of(node.targets[0]):
            value = self.added_up(value)  # `loss = loss + criterion(out[i], labels[i])`
            if self._begins_with_learnt(node):
                value = value.computed(LOCAL)
        counted = carried.counted_up(node)
        if counted is not None and value.made:
            changes = [each for each in counted[1] if self._lately(each).spread.is_local]
            value = value.but(made=frozenset((scope.source, each) for each in changes) or value.made)
        if isinstance(node.value, (ast.Call, ast.Await, ast.IfExp)) and self._modules_in(value):
            self.event("bind", node, scope, value)
        elif self._modules_in(value):
            self.event("alias", node, scope, value)
        elif isinstance(node.value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)) and not self._loops:
            held = union(each for each in self._contents(value) if self._modules_in(each))
            if held is not NOTHING:
                self.event("bind_each", node, scope, held)
        elif adds_to(node) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
            self._note_held_models(node, self._lately(node.value.right), scope)  # `nets = nets + [Net()]`
        for target in node.targets:
            self.assign(target, value, scope, node.value if counted is None else None)
            self._share(target, node.value, scope)
            if isinstance(target, ast.Subscript):
                self._join_optimizers(target, NOTHING, value, scope)
            if isinstance(target, (ast.Tuple, ast.List)):
                given = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else []
                for index, part in enumerate(target.elts):
                    bound = self.values.get(part, NOTHING)
                    if self._modules_in(bound):
                        made = index >= len(given) or isinstance(given[index], ast.Call)
                        self.event("bind_part" if made else "alias_part", part, scope, bound)
        if counted is not None:
            self._count_up(*counted, scope)

    def _loaded(self, node: ast.Assign, value: Value, scope: Scope) -> Value:
        """`model = torch.load(path)`: a name of a model is that of another one from here on."""
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Name) or not isinstance(call, ast.Call) or value.things:
            return value
        home = scope.find(target.id)
        named = {thing.name for thing in self.values.get(call.func, NOTHING).things if isinstance(thing, External)}
        if home is None or named != {"torch.load"} or not self._modules_in(home.names[target.id]):
            return value
        make = partial(Object, "torch.load", frozenset(["module"]), call, scope.source, self._path)
        return of(self._remember(call, make, "loaded"))

    def _begins_with_learnt(self, node: ast.Assign) -> bool:
        """Whether a sum over samples begins with what all ranks have, and gradients flow through: a penalty."""
        begun = self._lately(spine(node)[-1].left)
        return begun.spread is SAME and bool(begun.weights) and not begun.zero and not begun.things

    def do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            value = self._made(self.eval(node.value, scope), node.value, scope)
            if self._modules_in(value):
                self.event("bind" if isinstance(node.value, ast.Call) else "alias", node, scope, value)
            self.assign(node.target, value, scope, node.value)
        elif isinstance(node.target, ast.Name):
            scope.names.setdefault(node.target.id, NOTHING)

    def do_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        before = self.eval(node.target, scope)
        change = self.eval(node.value, scope)
        overloaded = self._overloaded(node.op, before, change, scope, within=True)
        if overloaded is not None:
            self.assign(node.target, overloaded, scope, None)
            return
        self._note_scaling(node.target, node.op, node.value, change, scope)
        self._join_optimizers(node.target, before, change, scope)
        if isinstance(node.target, (ast.Name, ast.Attribute)) and last_name(node.target) != "grad":
            if changed := self._parameters(node.target) if not self._forward else frozenset():
                self.event("own_step", node, scope, Value(changed))
            self._note_own_step(node, before, scope)
        if isinstance(node.op, ast.Add) and any(isinstance(t, Items) for t in before.things):
            self._note_refill(node.target, scope)
            self._note_held_models(node, change, scope)
            self._grow(before, [(change, node.value)], scope, "extend")
            self._note_row_by_row(node.target, scope)
            return
        held = [t for t in before.things if isinstance(t, Table)]
        if held and any(isinstance(t, Table) for t in change.things):  # `counts += Counter(labels)`
            for table, other in itertools.product(held, change.things):
                if isinstance(other, Table) and other is not table:
                    self._merge(table, other)
            return
        if any(isinstance(t, Items) for t in change.things):  # `sums += [loss.item(), error.item()]`, an array
            change = self._one_inside(change).but(things=frozenset())
        number = change.spread in (SAME, ROWS, LOCAL)
        number = number or change.spread is MEAN and (is_of_one(node.value) or self.is_by_turn(change))
        number = number and not change.things
        if isinstance(node.op, (ast.Add, ast.Sub)) and number and self._counts_rows_of(node.target):
            change = self.added_up(change.computed(change.spread))
            if isinstance(node.target, ast.Subscript) and before.spread in (SAME, ROWS):
                before = self._first_count(node.target)  # `counts[label]`, which is this rank's by its label only
        elif deciding := self._decided_by_rows(node, change):
            change = Value(spread=SUM, origins=deciding.origins | change.origins)
            before = self._counted_in(node.target, before)
            before = self._first_count(node.target) if before.spread is SAME and before.const is UNKNOWN else before
        if isinstance(node.op, (ast.Add, ast.Sub)):
            change = self._term(node.value, change, before, scope)
        spread = self._binary(node.op, before, change)
        self._note_statistic(node.op, before, change, node.value, scope, (node.target, node.value))
        joined = isinstance(node.op, (ast.Add, ast.BitOr)) and any(isinstance(t, Parameters) for t in before.things)
        more = frozenset(t for t in change.things if joined and isinstance(t, (Parameters, Items)))
        value = Value(
            before.things | more if not spread.is_local else frozenset(),
            spread,
            before.origins | change.origins,
            before.models | change.models,
            made=(before.made | {(scope.source, node.value)}) if spread.is_local else frozenset(),
            weights=before.weights | change.weights,
        )
        if node in self.plan.reduced:
            value = NOTHING
        within = self._is_shared_array(node.target, scope)
        self.assign(node.target, value, scope, None, within)
        if within:
            self._note_changes(node.target, [(scope.source, node.value)], scope)
        if isinstance(node.target, ast.Subscript):
            self._count_up(node.target, [node.value], scope)

    def _decided_by_rows(self, node: ast.AugAssign, change: Value) -> Value | None:
        """The rows that say whether, or where, something is counted: `if guess == label: right += 1`,
        `matrix[label, guess] += 1`, `errors[index] += (guess != label).long()`."""
        if self._forward or change.things or change.models or not isinstance(node.op, (ast.Add, ast.Sub)):
            return None
        if change.spread not in (SAME, ROWS):
            return None
        slices = [each.slice for each in walk(node.target) if isinstance(each, ast.Subscript)]
        keys = [part for each in slices for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
        tests = [test for _, test in self._row_tests] if change.spread is SAME else []
        return next((each for each in (*map(self._lately, keys), *tests) if each.spread is ROWS), None)

    def _counted_in(self, target: ast.expr, before: Value) -> Value:
        """What a table holds before, whichever of its numbers is counted up."""
        while isinstance(target, ast.Subscript):
            target = target.value
            held = self._lately(target)
            before = held if not held.things else before
        return before

    def _begins_with_ones(self, target: ast.expr) -> bool:
        """Whether what is counted in begins with other numbers than zeros: `matrix = np.ones((3, 3))`."""
        while isinstance(target, ast.Subscript):
            target = target.value
        made = [call for each in self._bound_to(target) for call in walk(each) if isinstance(call, ast.Call)]
        return any(last_name(each.func) in ("ones", "full", "ones_like", "full_like", "eye") for each in made)

    def _first_count(self, target: ast.expr) -> Value:
        """What the numbers of a list or dict are before they are counted up, if that is another one than 0."""
        things = self._lately(target.value).things if isinstance(target, ast.Subscript) else frozenset()
        held = [each for t in things if isinstance(t, (Items, Table)) for each in self._contents(of(t))]
        return next(filter(is_counted_in, held), constant(int(self._begins_with_ones(target))))

    def do_Return(self, node: ast.Return, scope: Scope) -> bool:
        if node.value is not None:
            value = self._made(self.eval(node.value, scope), node.value, scope)
            if self._returns:
                self._returns[-1].append(value)
        elif self._returns:
            self._returns[-1].append(constant(None))
        return True

    def do_Raise(self, node: ast.Raise, scope: Scope) -> bool:
        if node.exc is not None:
            self.eval(node.exc, scope)
        return True

    def do_Break(self, node: ast.stmt, scope: Scope) -> bool:
        self.event("leave", node, scope)
        return True

    do_Continue = do_Break

    def do_Delete(self, node: ast.Delete, scope: Scope) -> None:
        return None

    def do_Assert(self, node: ast.Assert, scope: Scope) -> None:
        self.eval(node.test, scope)  # each rank checks what it has
        if node.msg is not None:
            self.eval(node.msg, scope)

    def do_With(self, node: ast.With | ast.AsyncWith, scope: Scope) -> bool:
        quiet = 0
        for item in node.items:
            value = self.eval(item.context_expr, scope)
            names = {thing.name for thing in value.things if isinstance(thing, (External, Object))}
            quiet += any(self.catalog.has(name, "no_grad") for name in names)
            quiet += self._suspends_gradients(item.context_expr)
            entered = self._entered_as(value, scope)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered, scope, item.context_expr)
        self._no_grad += quiet
        left = self.block(node.body, scope)
        self._no_grad -= quiet
        for item in node.items:
            self._left(self._lately(item.context_expr), scope)
        return left

    do_AsyncWith = do_With
