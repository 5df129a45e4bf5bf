"""Running blocks and statements."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

from autodist import carried
from autodist.interpreter.arithmetic import Arithmetic
from autodist.interpreter.loops import Loops
from autodist.interpreter.questions import adds_to
from autodist.interpreter.stores import Stores
from autodist.source import last_name, stepped_tensor
from autodist.values import (
    NOTHING,
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


class Statements(Loops, Arithmetic, Stores):
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
        if self._forward:
            self._note_written_inside(node, scope)
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
        self.eval(node.value, scope)
        if isinstance(node.value, ast.Call) and (stepped := stepped_tensor(node.value)) is not None:
            self._note_own_step(node.value, self._lately(stepped), scope)

    def _note_own_step(self, node: ast.AST, before: Value, scope: Scope) -> None:
        """A tensor that is in no module is changed by its own gradient, which nothing averages."""
        stepped = stepped_tensor(node)
        known = stepped is not None and (self._lately(stepped) | before)
        if known and not known.spread.is_local and not self._forward:
            if not any(isinstance(t, Parameters) for t in known.things):
                self.event("loose_step", node, scope, known)

    def _note_written_inside(self, node: ast.stmt, scope: Scope) -> None:
        """Note what a forward pass writes into parameters."""
        changed = carried.written(node)
        if changed is not None and (parameters := self._parameters(changed[0])):
            self.event("written_inside", changed[0], scope, Value(parameters))

    def _parameters(self, target: ast.Name | ast.Attribute) -> frozenset[Parameters]:
        """The parameters that a name or attribute stands for."""
        held = [t for t in self._lately(target).things if isinstance(t, Parameters)]
        if isinstance(target, ast.Attribute) and target.attr in ("weight", "bias"):
            held += [Parameters(module, one=True) for module in self._lately(target.value).objects("module")]
        return frozenset(held)

    def do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self._loaded(node, self.eval(node.value, scope), scope)
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
            self.assign(target, value, scope, node.value)
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

    def do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            value = self.eval(node.value, scope)
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
        self._join_optimizers(node.target, before, change, scope)
        if isinstance(node.target, (ast.Name, ast.Attribute)) and last_name(node.target) != "grad":
            if changed := self._parameters(node.target) if not self._forward else frozenset():
                self.event("own_step", node, scope, Value(changed))
            self._note_own_step(node, before, scope)
        if isinstance(node.op, ast.Add) and any(isinstance(t, Items) for t in before.things):
            self._note_refill(node.target, scope)
            self._note_held_models(node, change, scope)
            self._grow(before, [(change, node.value)], scope, "extend")
            return
        held = [t for t in before.things if isinstance(t, Table)]
        if held and any(isinstance(t, Table) for t in change.things):  # `counts += Counter(labels)`
            for table, other in itertools.product(held, change.things):
                if isinstance(other, Table) and other is not table:
                    self._merge(table, other)
            return
        if any(isinstance(t, Items) for t in change.things):  # `sums += [loss.item(), error.item()]`, an array
            change = self._one_inside(change).but(things=frozenset())
        spread = self._binary(node.op, before, change)
        joined = isinstance(node.op, (ast.Add, ast.BitOr)) and any(isinstance(t, Parameters) for t in before.things)
        more = frozenset(t for t in change.things if joined and isinstance(t, (Parameters, Items)))
        value = Value(
            before.things | more if not spread.is_local else frozenset(),
            spread,
            before.origins | change.origins,
            weights=before.weights | change.weights,
        )
        within = self._is_shared_array(node.target, scope)
        self.assign(node.target, value, scope, None, within)

    def do_Return(self, node: ast.Return, scope: Scope) -> bool:
        if node.value is not None:
            value = self.eval(node.value, scope)
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
