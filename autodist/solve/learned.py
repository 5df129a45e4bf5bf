"""Which parameters a loss surely depends on: those that get a gradient in each step.

Forward over the graph: what an operation surely depends on is what any of its operands does, and of several values that
may stand in one place what all of them do. A part that is missing where a branch is not taken is missed by nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Any

from autodist.program import EMPTY, Operation, Program, Region, Value, closure, held
from autodist.solve.parameters import (
    ALL,
    EVERY,
    LAST,
    LAYERS,
    intersection,
    is_list,
    is_parameter,
    runs_in_turn,
    union,
    unwrapped,
)
from autodist.solve.sides import Branch, Side, Sides, branching
from autodist.solve.steps import given, is_constant, steps_of
from autodist.trace.things import Heap, Mapping, Object, Sequence, Stream

DEEPEST = 8
MOST_ROUNDS = 200
COUNTED = ("range.", "operator.", "builtins.", "torch.Tensor.item")
"""Beginnings of the names of what computes a number of rounds of another number."""
DRAWING = ("random.", "numpy.random.", "torch.rand")
"""Beginnings of the names of what draws numbers."""


@lru_cache(maxsize=2)
def learned(program: Program) -> Learned:
    """The parameters that the losses of a program depend on: found once for all models."""
    return Learned(program)


class Learned(Sides):
    """What losses depend on, as bits: one for each parameter, and one for each list of layers of which all are run."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._in_loop: dict[tuple[str, Region], int] = {}
        self._gone_through: dict[Region, frozenset[Operation]] = {}
        self._calls: dict[Operation, tuple[ast.AST, object] | None] = {}
        self._drawn: dict[Region, bool] = {}
        self._instead: dict[Operation, int] = {}
        self._loose = frozenset(steps_of(program).stepped)
        self._may: dict[Operation, int] = dict.fromkeys(program.operations, 0)
        self._surely: dict[Operation, int] = dict.fromkeys(program.operations, EVERY)
        self._settle(self._may, self._reached)
        self._settle(self._surely, self._of)
        if endless := [op for op, found in self._surely.items() if found == EVERY]:  # of which no beginning is seen
            self._surely |= dict.fromkeys(endless, 0)
            self._settle(self._surely, self._of)

    def leaves(self, node: ast.AST) -> bool:
        """Whether a step may leave parameters of the modules that are made at ``node`` without a gradient; those of
        modules that are frozen, or were, are not asked."""
        return any(self._reached(each) & whole and whole & ~self._of(each) for whole, each in self._asked(node))

    def varies(self, node: ast.AST) -> bool:
        """Whether some of them have one after one step, and none after another."""
        return any(self._reached(each) & whole & ~self._of(each) for whole, each in self._asked(node))

    def vary_by_samples(self, node: ast.AST) -> bool:
        """The same, where samples or draws decide: one rank has gradients that another one lacks."""
        lacking = union(self._reached(each) & whole & ~self._of(each) for whole, each in self._asked(node))
        return self._decided_by_samples(lacking)

    @cached_property
    def loose_vary(self) -> bool:
        """Whether some parameters in no module have a gradient after one step, and none after another. Where they are
        stepped by hand, a step that does not ask for a gradient has one."""
        if not self._program.of("optimizer.step") and not any(map(_asks_for_gradient, self._program.operations)):
            return False
        held = union(self.parameters(each) for roots in list(self._roots.values()) for each in roots)
        made = (op for op in self._program.operations if is_parameter(op) or op in self._loose)
        loose = union(map(self._bit, made)) & ~held
        return any(self._reached(each) & loose & ~self._of(each) for each in self.backwards)

    def _decided_by_samples(self, lacking: int) -> bool:
        """Whether samples or draws decide over an operation that reads one of some parameters."""
        for op in self._program.operations if lacking else ():
            if lacking & (self._given(op) | self._picked_from(op)) and not is_parameter(op) and self._differs(op):
                return True
            for value in op.operands:
                taken = union(self._given(each) for each in value.operations if is_parameter(each))
                if lacking & taken and (len(value.operations) > 1 or self._differs(op)):
                    return True  # which of several it is was decided elsewhere
        return False

    def _picked_from(self, op: Operation) -> int:
        """The parameters of the layers of a list of which an operation takes one."""
        layers = op.owner if isinstance(op.node, ast.Subscript) and isinstance(op.owner, Object) else None
        return self.parameters(layers) if layers is not None and layers.roles & LAYERS else 0

    def _differs(self, op: Operation) -> bool:
        """Whether an operation may run on one rank, and not on another in the same step."""
        rounds = op.region.loops - self._steps
        if any(not self._runs_once(frozenset([each])) for each in rounds):
            return True
        asked = [*self._tests_around(op), *([op.node.slice] if isinstance(op.node, ast.Subscript) else [])]
        asked += [test for each in rounds for test in getattr(each.node, "ifs", ())]  # those of a comprehension
        for call in self._calls_around(op):
            if isinstance(call.func, ast.Subscript):
                asked.append(call.func.slice)
            elif len(self._program.at(call.func).things) > 1:
                return True  # which of them is called was decided elsewhere
        ops = [of for each in asked if each is not None for of in self._program.at(each).operations]
        return (
            None in asked or self._go_by_samples(ops) or any(of.name.startswith(DRAWING) for of in closure(ops, given))
        )

    def draws_parts(self, node: ast.AST) -> bool:
        """Whether it is drawn which parts of a module run, or how often: `self.heads[randint(4)]`."""
        whole = union(map(self.parameters, self._roots.get(node, ())))
        for op in (each for each in self._program.operations if self._given(each) & whole):
            rounds = [e for e in op.region.loops - self._steps if self._in_pass(e)]
            taken = [each.func.slice for each in self._calls_around(op) if isinstance(each.func, ast.Subscript)]
            above = closure((of for each in taken for of in self._program.at(each).operations), given)
            if rounds and not self._runs_once(frozenset(rounds)) or any(o.name.startswith(DRAWING) for o in above):
                return True
        return False

    def may_be_frozen(self, node: ast.AST) -> bool:
        """Whether a module made at ``node``, of which parameters are frozen, has an optimizer only where a setting asks
        for one: `Adam(encoder.parameters()) if tune else None`."""
        roots = self._roots.get(node, {})
        frozen = self._released_by(op for op in self._releasing if _may_freeze(op))
        if not any(self.parameters(each) & ~self.parameters(each, frozen) for each in roots):
            return False
        whole, made = union(map(self.parameters, roots)), frozenset(each for root in roots for each in root.guards)
        stepped = {each.operation.owner for each in self._program.of("optimizer.step")}
        ours = [each for each in stepped if isinstance(each, Object) and self._stepped_by(each) & whole]
        return bool(ours) and all(_is_optional(each, ours, made) for each in ours)

    def _stepped_by(self, optimizer: Object) -> int:
        taken = closure((op for v in (*optimizer.inputs, *optimizer.keywords.values()) for op in held(v)), given)
        return union(map(self._given, taken))

    def learns_from_derivatives(self, node: ast.AST) -> bool:
        """Whether what goes backward at ``node`` was computed from gradients of a model, and from nothing else that one
        gave: a last bias has no say in it."""
        grads = self._derivatives
        losses = [op for op in self.backwards if op.node is node] if grads else []
        reached = closure(losses, lambda op: () if op in grads else given(op))
        return bool(reached & grads) and not any(self._given(op) or self._in_pass(op.region) for op in reached - grads)

    @cached_property
    def _derivatives(self) -> set[Operation]:
        """What takes gradients with regard to samples, through which others flow."""
        grads = {op for op in self._program.operations if op.name.endswith("autograd.grad") and _keeps_graph(op)}
        return {op for op in grads if not self._any(op.argument("inputs", 1) or EMPTY)}

    def _asked(self, node: ast.AST) -> Iterator[tuple[int, Operation]]:
        for root in self._roots.get(node, ()):
            whole = self.parameters(root, self._frozen) & ~self._as_often_as(root)
            yield from ((whole, each) for each in self.backwards)

    @cached_property
    def _frozen(self) -> frozenset[ast.AST]:
        """Where modules are made of which parameters are frozen, or released."""
        return self._released_by(self._releasing)

    @cached_property
    def _releasing(self) -> list[Operation]:
        stores = [op for op in self._program.operations if op.name == "setattr"]
        stores = [op for op in stores if op.inputs[1].constant == "requires_grad"]
        return [*stores, *(op for op in self._program.operations if op.name.endswith(".requires_grad_"))]

    def _released_by(self, ops: Iterable[Operation]) -> frozenset[ast.AST]:
        found, pending = set[Any](), [op.owner for op in closure(ops, _parameters_taken)]
        while pending:  # with all layers in them, copies of which are made at the same places
            each = pending.pop()
            if each not in found and isinstance(each, Heap):
                found.add(each)
                values = [*each.contents(), *(each.inputs if isinstance(each, Object) else ())]
                pending += [thing for value in values for thing in value.things]
        return frozenset(each.node for each in found if isinstance(each, Object) and each.roles & LAYERS)

    def _reads(self, op: Operation) -> int:
        return self._bit(op) if op in self._loose else super()._reads(op)

    # dataflow

    def _settle(self, found: dict[Operation, int], of: Any) -> None:
        pending = dict.fromkeys(self._program.operations)
        for _ in range(MOST_ROUNDS):
            again: dict[Operation, None] = {}
            for each in pending:
                new = of(each)
                if new != found[each]:
                    found[each] = new
                    again |= dict.fromkeys(self._program.users[each])
            pending = again

    def _reached(self, op: Operation) -> int:
        if is_constant(op) and op not in self.backwards and op not in self._loose:
            return 0
        found = self._given(op)
        if isinstance(op.node, ast.Subscript) and self._go_by_samples(self._program.at(op.node.slice).operations):
            found |= self._picked_from(op)
        for each in op.operands:
            found |= self._any(each)
        if isinstance(op.owner, Object) and op.owner.cls is None and not op.owner.roles & LAYERS:
            found |= union(self._any(each) for each in (*op.owner.inputs, *op.owner.keywords.values()))
        return found

    def _any(self, value: Value, depth: int = DEEPEST) -> int:
        found = 0
        for op in value.operations:
            found |= self._may[op]
        for each in value.things if depth else ():
            if isinstance(each, (Sequence, Mapping, Stream)):
                for inner in each.contents():
                    found |= self._any(inner, depth - 1)
        return found

    def _of(self, op: Operation) -> int:
        """What an operation surely depends on."""
        if is_constant(op) and op not in self.backwards and op not in self._loose:
            return 0
        found = self._given(op)
        for at, each in enumerate(op.operands):
            needed = not at and op.name.startswith(("torch.Tensor.", "operator.", "object."))
            found |= self._value(each, op, needed)
        if isinstance(op.owner, Object) and op.owner.cls is None and not op.owner.roles & LAYERS:
            found |= union(self._value(each, op) for each in (*op.owner.inputs, *op.owner.keywords.values()))
        if op.name.endswith("autograd.grad"):  # in which a last bias has no say
            found &= ~self._biases
        return found

    @cached_property
    def _biases(self) -> int:
        return sum(1 << at for key, at in self._bits.items() if isinstance(key, tuple) and key[1] == "bias")

    def _value(self, value: Value, user: Operation, needed: bool = False, depth: int = DEEPEST) -> int:
        """The same of a value, which is no None where it is ``needed``."""
        if not depth:
            return 0
        ways = [self._thing(each, user, depth - 1) for each in value.things]
        constants = [each for _, each in value.constants if each is not None or not needed]
        if not value.operations:
            return intersection([*ways, *(0 for _ in constants)])
        return self._alternatives(value.operations, [*ways, *(0 for _ in constants)], user)

    def _thing(self, each: Any, user: Operation, depth: int) -> int:
        """What is surely read of a list, a dict, or an object."""
        if not isinstance(each, (Sequence, Mapping, Stream)) or not _reads_all(user):
            return 0
        around, found = self._branches_at(user), 0
        if isinstance(each, Sequence) and each.parts is not None:
            told = each.parts
        elif isinstance(each, Mapping):
            sure = (slot for slot in each.entries.values() if around.issuperset(branching(slot.guards)))
            told = [slot.value for slot in sure]
        else:
            told = []
        for part in told:
            found |= self._value(part, user, depth=depth)
        some = each.element if isinstance(each, Stream) else each.anywhere
        if self._go_by_samples(getattr(each, "picked", EMPTY).operations):
            return found  # it may hold none of these
        instead: dict[ast.AST | Operation, list[Operation]] = {}
        for op in (op for op in some.operations if self._branches_at(op) <= around):
            loops = op.region.loops - user.region.loops - self._steps
            if not loops or self._runs_once(loops):
                instead.setdefault(self._chosen_at(op, loops), []).append(op)
        for ops in instead.values():
            found |= self._alternatives(ops, [], user) if len(ops) > 1 else self._surely[ops[0]]
        return found

    def _chosen_at(self, op: Operation, loops: frozenset[Region]) -> ast.AST | Operation:
        """The call of one of several modules, or of several operations, of which each sample takes one: loops go over
        samples alone, or these are asked which one it is. The operation itself where there is none."""
        calls = [*self._calls_around(op)]
        at = next((each for each in calls if len(self._program.at(each.func).things) > 1), op.node)
        asked = getattr(at, "func", None)
        asked = getattr(asked, "slice", getattr(asked, "test", None))
        by_samples = asked is not None and self._go_by_samples(self._program.at(asked).operations)
        over = loops and all(self._go_by_samples(held(each.subject)) for each in loops)
        return at if over or by_samples else op

    def _alternatives(self, ops: Iterable[Operation], others: list[int], user: Operation) -> int:
        """What all of several operations depend on that may give a value, or ``others`` in its place."""
        ops, around, loops = list(ops), self._branches_at(user), user.region.loops
        if len(ops) == 1 and not others:
            return self._leaving(ops[0], user)
        if self._goes_through(ops, loops):
            return union(self._surely[op] for op in ops if self._branches_at(op) <= around)
        apart = {op: self._branches_at(op) - around for op in ops}
        inner = [op for op in ops if self._runs_once(op.region.loops - loops) and not apart[op]]
        if inner:  # a loop runs once at least
            first = min(op.number for op in inner)
            ops, others = [op for op in ops if op.number >= first], []
        ops = [op for op in ops if not any(self._side(each).trains is False for each in apart[op])]
        trained = [op for op in ops if apart[op] and all(self._side(each).trains for each in apart[op])]
        if trained:
            first = min(op.number for op in trained)
            ops, others = [op for op in ops if op.number >= first], []
        exist = [(side, told.exist) for op in ops if (told := self._only(apart[op])) for side in apart[op]]
        ways = [each | union(there for _, there in exist) for each in others]
        for group in self._in_turn(ops):
            if len(group) > 1:
                ways.append(union(self._alternatives(each, [], user) for each in group))
                continue
            for op in group[0]:
                missing = union(there for side, there in exist if side not in apart[op]) | self._others(op)
                ways.append(self._leaving(op, user) | missing)
        return intersection(ways)

    def _only(self, sides: Iterable[Side]) -> Branch | None:
        """What a branch tells, if it is the only one of some, apart from those that are always passed."""
        asked = [each for each in map(self._side, sides) if not each.trains]
        return asked[0] if len(asked) == 1 else None

    def _leaving(self, op: Operation, user: Operation) -> int:
        """What an operation surely depends on, seen from one that is given what it gives in a later round of a loop, or
        behind it: of the layers that the loop runs, it may be that of one alone."""
        found = self._surely[op]
        around, inside = user.region.loops - self._steps, op.region.loops - self._steps
        if op.number >= user.number and around & inside:
            return found & ~union(self._run_in(LAST, each) for each in around & inside)
        if inside - around and op not in self._program.cyclic:
            return found & ~union(self._run_in(ALL, each) for each in inside - around)
        return found

    def _run_in(self, which: str, loop: Region) -> int:
        found = self._in_loop.get((which, loop))
        if found is None:
            layers = (each for each in self._layers_in.get(loop, ()) if (each, which) in self._bits)
            found = self._in_loop[which, loop] = union(self._bit((each, which)) for each in layers)
        return found

    @cached_property
    def _layers_in(self) -> dict[Region, set[Object]]:
        """The objects whose methods and forward passes are run in each loop."""
        found: dict[Region, set[Object]] = {}
        for op in self._program.operations:
            for loop in op.region.loops if isinstance(op.owner, Object) else ():
                found.setdefault(loop, set()).add(op.owner)
        return found

    def _runs_once(self, loops: frozenset[Region]) -> bool:
        """Whether some loops run once at least: but where it is drawn how often, or samples decide."""
        for each in loops - self._drawn.keys():
            asked = closure(held(each.subject), lambda op: given(op) if op.name.startswith(COUNTED) else ())
            told = [of for op in asked if op.name.startswith("range.") for of in given(op)]
            told += self._program.at(each.node.test).operations if isinstance(each.node, ast.While) else []
            told += [of for t in each.subject.things for of in getattr(t, "picked", EMPTY).operations]
            self._drawn[each] = any(op.name.startswith(DRAWING) for op in asked) or self._go_by_samples(told)
        return bool(loops) and not any(self._drawn[each] for each in loops)

    def _goes_through(self, ops: list[Operation], loops: frozenset[Region]) -> bool:
        """Whether these are what a loop goes through, one after the other."""
        if len(ops) < 2:
            return False
        return any(self._inside_of(each).issuperset(ops) for each in loops - self._steps)

    def _inside_of(self, loop: Region) -> frozenset[Operation]:
        found = self._gone_through.get(loop)
        if found is None:
            found = self._gone_through[loop] = frozenset(_inside(loop.subject))
        return found

    def _in_turn(self, ops: list[Operation]) -> Iterator[list[list[Operation]]]:
        """Operations in groups: in one are those that layers give which are called one after the other, by one call,
        those of each layer together."""
        groups: dict[object, dict[object, list[Operation]]] = {}
        for op in ops:
            if op not in self._calls:
                self._calls[op] = self._call_of(op)
            call, layer = self._calls[op] or (op, op)
            groups.setdefault(call, {}).setdefault(layer, []).append(op)
        yield from (list(each.values()) for each in groups.values())

    def _others(self, op: Operation) -> int:
        """The parameters of the models that may be called in the place of the one that computes something."""
        if op in self._instead:
            return self._instead[op]
        self._instead[op] = found = 0
        if op.name == "getitem" and op.inputs[0].operations:  # of several that it gives
            self._instead[op] = found = intersection([self._others(each) for each in op.inputs[0].operations])
            return found
        calls = [(op.node, op.region, self._given(op))]
        calls += [(e.node, e.parent, self._within.get(e, 0)) for e in op.region.around() if e.function and e.parent]
        for node, around, ours in calls:
            models = list(unwrapped(self._program.at(node.func))) if isinstance(node, ast.Call) else []
            several = len(models) > 1 or op.name == "call" and node is op.node  # beside what is not known
            if several and not (self._in_pass(around) and self._listed & set(models)):
                found |= union(own for each in models if not (own := self.parameters(each)) & ours)
        self._instead[op] = found
        return found

    @cached_property
    def _within(self) -> dict[Region, int]:
        """The parameters that are read in each region."""
        found: dict[Region, int] = {}
        for op in self._program.operations:
            if given := self._given(op):
                found |= {each: found.get(each, 0) | given for each in op.region.around()}
        return found

    @cached_property
    def _listed(self) -> frozenset[Any]:
        """The modules that a list or a dict holds, of which a step may pick one."""
        values = (each for each in self._program.values.values() if each.things)
        lists = (t for value in values for t in value.things if isinstance(t, (Sequence, Mapping)) or is_list(t))
        return frozenset(each for found in set(lists) for each in _elements(Value(things=frozenset([found])), 1))

    def _call_of(self, op: Operation) -> tuple[ast.AST, object] | None:
        """The call of what a loop goes through, or of a container of layers, in which an operation is run, and the part
        of it that a layer runs."""
        around = [(op.node, op.owner or op), *((e.node, e) for e in op.region.around() if e.function is not None)]
        for node, part in reversed(around):
            called = self._program.at(node.func).things if isinstance(node, ast.Call) else frozenset()
            if any(isinstance(each, Object) and runs_in_turn(each) for each in called):
                return node, part
            if len(called) > 1 and any(called <= set(_elements(e.subject)) for e in op.region.loops):
                return node, part
        return None


def _parameters_taken(op: Operation) -> frozenset[Operation]:
    """What a parameter is taken of, from where it is frozen up to the module: `for p in net.parameters()`"""
    return given(op) if op.owner is None else frozenset()


def _may_freeze(op: Operation) -> bool:
    """Whether `requires_grad` is set to something else than True, as a setting may be."""
    told: list[ast.expr | None]
    if isinstance(op.node, ast.Call):
        told = [*op.node.args[-1:], *(each.value for each in op.node.keywords)]
    else:
        told = [getattr(op.source.statement(op.node), "value", None)]
    return any(not isinstance(each, ast.Constant) or each.value is not True for each in told)


def _keeps_graph(op: Operation) -> bool:
    return op.keywords.get("create_graph", EMPTY).constant is True


def _is_optional(optimizer: Object, others: Iterable[Object], made: frozenset[Region]) -> bool:
    """Whether one side of a branch makes an optimizer, and the other one none, of a model made outside of it."""
    for side in branching(optimizer.guards) - made:
        branch, home = side.source.parents.get(side.node), side.source.function(side.node)
        beside = {g for each in others for g in branching(each.guards) if g.source.parents.get(g.node) is branch}
        if optimizer.source is side.source and home is side.source.function(optimizer.node) and beside == {side}:
            return True
    return False


def _asks_for_gradient(op: Operation) -> bool:
    """Whether it asks if there is a gradient: `w.grad is not None`, `if w.grad:`"""
    return op.name in ("operator.is_not", "operator.is_") and any(each.name.endswith(".grad") for each in given(op))


def _reads_all(op: Operation) -> bool:
    """Whether it reads all that it is given in a list."""
    return op.name.startswith(("torch.", "operator.", "builtins.", "einops."))


def _inside(value: Value, depth: int = 3) -> Iterator[Operation]:
    """The operations that give what is in a list."""
    for each in value.things if depth else ():
        if isinstance(each, (Sequence, Mapping, Stream)):
            for inner in each.contents():
                yield from inner.operations
                yield from _inside(inner, depth - 1)


def _elements(value: Value, depth: int = 3) -> Iterator[Any]:
    """The things that are in a list, or in a container of layers."""
    for each in value.things if depth else ():
        inside = [*each.contents()] if isinstance(each, (Sequence, Mapping, Stream, Object)) else []
        inside += each.inputs if isinstance(each, Object) else ()
        for inner in inside:
            yield from inner.things
            yield from _elements(inner, depth - 1)
