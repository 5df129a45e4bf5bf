"""The steps of a training: what gradients are computed from, and what of it is computed anew in each step."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache

from autodist.program import Operation, Program, Region, Value, closure, held
from autodist.solve.parameters import Parameters
from autodist.source import is_generator, walk
from autodist.trace.things import Object, Stream

MODULE = "torch.nn.Module"
CONSTANT = frozenset("detach detach_ data item tolist numpy argmax argmin argsort long int bool size shape len".split())
"""The last parts of the names of operations that no gradient flows through."""
PACKED = ("pack_padded_sequence", "pack_sequence")
"""Ends of the names of operations whose results have their numbers as `.data`."""
WITHOUT_NUMBERS = frozenset("fact length fill fill_like arange".split())
"""Classes of operations whose results do not depend on the numbers that they are given."""
FOLLOWED = frozenset(
    "torch numpy random builtins operator math getitem setitem iterate sample loader range data".split()
)
"""The beginnings of the names of operations whose results have gradients only where what they are given has."""
LEARNED = ("Parameter", ".weight", ".bias")
"""Ends of the names of operations that give what is trained."""
ALL_LEARNED = (".parameters", ".named_parameters")
"""Those that give all of it."""
LOADED = ("loader", "sample", "iterate", "range")
"""Beginnings of the names of operations that give something else in each step."""
TOGETHER = frozenset(
    "cat concat stack view reshape flatten ravel clone detach contiguous float to data getitem iterate "
    "_flatten_dense_tensors parameters_to_vector".split()
)
"""The last parts of the names of operations that keep the numbers of the gradients that they are given."""
GRADIENTS = (".grad", "autograd.grad", ".backward")
"""Ends of the names of operations that give gradients."""


@lru_cache(maxsize=2)
def steps_of(program: Program) -> Steps:
    """The steps of a program, which does not change any more: found once for all that asks for them."""
    return Steps(program)


class Steps:
    """What gradients are computed from."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.backward = [each.operation for each in program.of("backward")]
        self.reaching = self.upstream(self.backward)
        self.ordered = sorted(self.reaching, key=lambda each: each.number)
        self._around = frozenset(loop for each in self.backward for loop in each.region.loops)
        self._innermost = frozenset(loop for each in self.backward for loop in _innermost(each.region))

    def upstream(self, ends: Iterable[Operation], stop: frozenset[Operation] = frozenset()) -> frozenset[Operation]:
        """What some operations are given, and what that is computed from."""
        found: set[Operation] = set()
        pending = [each for end in ends for each in given(end)]
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += () if each in stop or self.is_of_module(each) else given(each)
        return frozenset(found)

    @cached_property
    def expressions(self) -> frozenset[ast.expr]:
        """The expressions that losses are computed from: training needs this rank's share of them."""
        return self.program.giving({*self.reaching, *self.backward})

    @cached_property
    def differentiated(self) -> frozenset[Operation]:
        """What gradients flow through, from losses back to what is trained."""
        taken = [each for each in self.program.operations if each.name == "torch.autograd.grad"]
        within = self.reaching | self.upstream(taken)
        ends = {each for end in (*self.backward, *taken) for each in given(end) if not is_constant(each)}
        back = closure(ends, lambda op: (e for e in given(op) & within if not is_constant(e)))
        trained = {each for each in back if self._is_trained(each)}
        return frozenset(closure(trained, lambda each: back.intersection(self.program.users[each])))

    @cached_property
    def states(self) -> frozenset[Operation]:
        """What is computed of what an earlier step has kept, and kept itself: no gradient flows through it."""
        kept = (self.reaching - self.differentiated) & self.program.cyclic
        found = {each for each in kept if any(other.number >= each.number for other in given(each) & kept)}
        return frozenset(closure(found, lambda each: kept.intersection(self.program.users[each])))

    @cached_property
    def carried(self) -> Mapping[Operation, list[Operation]]:
        """The states that a step leaves to the next one, and what reads them there: no gradient flows on to it."""
        found: dict[Operation, list[Operation]] = {}
        for user in self.ordered:
            for each in given(user) & self.reaching:
                goes_on = self._goes_on(each, user) and not self._is_begun_anew(each, user)
                if goes_on and not each.name.startswith(LOADED):
                    found.setdefault(each, []).append(user)
        learnt = self.differentiated
        return {each: users for each, users in found.items() if each not in learnt or any(map(is_constant, users))}

    def _goes_on(self, operation: Operation, user: Operation) -> bool:
        """Whether what is used was given in an earlier round of a loop: not by another one of several models that a
        place stands for, whose operations are met after those of the first."""
        if operation.number < user.number:
            return False
        beside = (other for value in user.operands if operation in value.operations for other in value.operations)
        alike = (other for other in beside if other.node is operation.node and other.number < user.number)
        return not any(_place(other) == _place(operation) for other in alike)

    def _is_begun_anew(self, operation: Operation, user: Operation) -> bool:
        """Whether a loop within a step hands something on from round to round that each step makes for itself."""
        if not self.loops_in_step(operation) & self.loops_in_step(user):
            return False
        read = [value for value in user.operands if operation in held(value)]
        begun = [each for value in read for each in value.operations if each.number < user.number]
        return bool(begun) and all(map(self.in_step, begun)) and not any(value.constants for value in read)

    def _is_trained(self, operation: Operation) -> bool:
        """Whether gradients begin there, for all that is known: at what is trained, and at what is not followed."""
        if "module" in getattr(operation.owner, "roles", ()) or self._is_learned(operation):
            return True
        first, _, rest = operation.name.partition(".")
        if first == "object" and self.program.table.find(f"torch.Tensor.{rest}") is not None:
            return False
        return first not in FOLLOWED and (operation.known is None or operation.owner is not None)

    def has_gradients(self, value: Value) -> bool:
        """Whether a value has a graph, as far as is known: it is computed of what is trained, gradients on."""
        quiet = (each for each in self.program.operations if each.region.without_gradients)
        without = {*quiet}
        above = closure(value.operations - without, lambda op: (given(op) - without) if not is_constant(op) else ())
        return any(map(self._is_trained, above))

    def downstream(self, start: Operation) -> set[Operation]:
        """What is computed of an operation, on the way to a gradient."""
        return closure(self._users(start), self._users)

    def _users(self, operation: Operation) -> Iterator[Operation]:
        return (each for each in self.program.users[operation] if each in self.reaching)

    def in_step(self, operation: Operation) -> bool:
        """Whether it is computed anew in each step: in the innermost loop around one, or where a generator makes its
        batch."""
        return self._within(operation, self._innermost)

    def in_pass(self, operation: Operation) -> bool:
        """Whether it is computed in any of the loops around a step, or where a generator makes its batch."""
        return operation in self._rounds or self._within(operation, self._around)

    def is_before(self, operation: Operation) -> bool:
        """Whether it was computed ahead of all steps."""
        return operation not in self._rounds and self._around.isdisjoint(operation.region.loops)

    def are_before(self, regions: Iterable[Region]) -> bool:
        """Whether none of some regions is a loop whose rounds are steps."""
        return self._innermost.isdisjoint(regions)

    def once_a_step(self, operation: Operation) -> bool:
        """Whether no loop is around it that goes on within a step."""
        return all(each in self._around or _yields(each) for each in _innermost(operation.region))

    def loops_in_step(self, operation: Operation) -> frozenset[Region]:
        """The loop next around it, if that goes on within a step."""
        return frozenset(
            each for each in _innermost(operation.region) if each not in self._around and not _yields(each)
        )

    @cached_property
    def _rounds(self) -> frozenset[Operation]:
        """What the loops around steps come to in each round, `zip(x, y)`."""
        streams = (Value(things=each.subject.things) for each in self._around)
        return frozenset(each for each in all_held(streams) if each.name == "iterate")

    @cached_property
    def gone_through(self) -> frozenset[Operation]:
        """What the loops around steps go through, one sample in each round."""
        found: set[Operation] = set()
        pending = [each.subject for each in self._around]
        while pending:
            each = pending.pop()
            found |= each.operations
            pending += [thing.over for thing in each.things if isinstance(thing, Stream)]
        return frozenset(found)

    def _within(self, operation: Operation, loops: frozenset[Region]) -> bool:
        inner: list[Region] = []
        for region in operation.region.around():
            if region.function is not None and is_generator(region.function):
                return any(_yields(each) for each in inner)  # ahead of the loop it is for all batches
            inner += [region] if region.kind == "loop" else []
        return not loops.isdisjoint(operation.region.loops)

    def in_module(self, operation: Operation) -> bool:
        """Whether a module computes it, of its input or where it is made."""
        called = any("module" in getattr(each, "roles", ()) for each in self._called(operation))
        return called or self._is_built(operation)

    def is_of_module(self, operation: Operation) -> bool:
        """Whether it is trained, or a part of a module from its constructor: no parameter that steps compute anew."""
        return self._is_learned(operation) or self._is_built(operation)

    def _is_learned(self, operation: Operation) -> bool:
        learned = operation.name.endswith(LEARNED) and operation not in self.program.cyclic
        return learned or operation in self._trained

    @cached_property
    def begun(self) -> list[Operation]:
        """What puts numbers into what is trained, which are no gradients: `layer.weight /= layer(x).std()`"""
        learned = (*LEARNED, *ALL_LEARNED)
        found = [(each, self._changed_by(each)) for each in self.program.operations]
        begun = [each for each, base in found if any(op.name.endswith(learned) for op in _behind_data(base))]
        return [each for each in begun if not self.follows_gradients(each)]

    def _changed_by(self, operation: Operation) -> Value:
        """What an operation changes in place, or is put in the place of: `p.data = 0.9 * p.data`."""
        if changes_in_place(operation):
            return operation.inputs[0] if operation.inputs else Value()
        statement = operation.source.parents.get(operation.node)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        data = isinstance(target, ast.Attribute) and target.attr == "data"
        return self.program.at(target.value) if data and isinstance(target, ast.Attribute) else Value()

    @cached_property
    def buffered(self) -> list[Operation]:
        """What steps put into buffers of modules that have parameters: their wrappers have all ranks go on with the
        buffers of rank 0."""
        parameters, found = Parameters(self.program), dict[Operation, None]()
        things = dict.fromkeys(each for value in self.program.values.values() for each in value.things)
        for one in things:
            if isinstance(one, Object) and one.buffers and parameters.parameters(one):
                slots = (slot for name, slot in one.attributes.items() if name in one.buffers)
                found |= dict.fromkeys(op for slot in slots for op in held(slot.value))
        return [each for each in found if self.in_pass(each) and not self._is_built(each)]

    def follows_gradients(self, operation: Operation) -> bool:
        """Whether it is computed from gradients, which are averaged or refused elsewhere."""
        return operation in self._following

    @cached_property
    def _following(self) -> frozenset[Operation]:
        """What is computed from gradients."""
        users: dict[Operation, list[Operation]] = {}
        for user in self.program.operations:
            for each in given(user):
                users.setdefault(each, []).append(user)
        begun = (each for each in self.program.operations if each.name.endswith(GRADIENTS))
        return frozenset(closure(begun, lambda each: users.get(each, ())))

    @cached_property
    def _trained(self) -> frozenset[Operation]:
        """What optimizers are given, and that of which the gradient is read, or set: `p.grad = None`."""
        found: set[Operation] = set()
        for each in self.program.operations:
            reads = each.name == "torch.Tensor.grad" or each.name == "setattr" and each.inputs[1].constant == "grad"
            if reads or "optimizer" in getattr(each.owner, "roles", ()):
                found |= given(each)
        return frozenset(found)

    @cached_property
    def stepped(self) -> list[Operation]:
        """Tensors that are made with `requires_grad=True`, and stepped by their gradients."""
        made = (e for e in self._trained if "requires_grad" in e.keywords and not e.name.endswith(LEARNED))
        return [each for each in made if each.keywords["requires_grad"].constant is not False]

    @cached_property
    def derived(self) -> list[Operation]:
        """Tensors that are made with `requires_grad=True` and that nothing trains: a loss is derived by them, as by the
        points of a physics-informed network, `torch.autograd.grad(u, x)`."""
        made = [e for e in self.program.operations if "requires_grad" in e.keywords and not e.name.endswith(LEARNED)]
        things = {each for value in self.program.values.values() for each in value.things} if made else ()
        objects = [each for each in things if isinstance(each, Object) and not each.roles & {"dataset", "loader"}]
        values = [value for each in objects for value in (*each.inputs, *each.keywords.values())]
        values += [value for each in objects if "module" in each.roles for value in each.contents()]
        kept = {op for value in values for op in held(value)} | self._trained
        for each in self.program.operations if made else ():
            if changes_in_place(each) or each.name.endswith(("setitem", "torch.Tensor.data", "Parameter")):
                kept |= {op for value in each.inputs[:1] for op in value.operations}
        return [each for each in made if each not in kept]

    @cached_property
    def averages(self) -> bool:
        """Whether the script itself reduces gradients over the ranks, `all_reduce(p.grad)`, or all put together."""
        reduced = all_held(each for effect in self.program.of("collective") for each in effect.operation.inputs[:1])
        kept = closure(reduced, lambda each: given(each) if each.name.rpartition(".")[2] in TOGETHER else ())
        return any(each.name == "torch.Tensor.grad" for each in kept)

    def _is_built(self, operation: Operation) -> bool:
        return any(MODULE in getattr(each, "libraries", ()) for each in self._called(operation))

    def _called(self, operation: Operation) -> Iterator[object]:
        """What is called where an operation is run."""
        for region in operation.region.around():
            if isinstance(region.node, ast.Call):
                yield from self.program.at(region.node.func).things


def is_constant(operation: Operation) -> bool:
    """Whether no gradient flows through it."""
    if operation.region.without_gradients:
        return True
    if operation.name.rpartition(".")[2] in CONSTANT:
        return not any(each.name.endswith(PACKED) for each in given(operation))  # `pack_padded_sequence(out, n).data`
    known = operation.known
    return known is not None and (known.cls in WITHOUT_NUMBERS or bool(known.parameters.get("compares")))


def changes_in_place(operation: Operation) -> bool:
    """Whether it changes what it is given in place."""
    short = operation.name.rpartition(".")[2]
    return short.endswith("_") and not short.startswith("__") or isinstance(operation.node, ast.AugAssign)


def _behind_data(value: Value) -> Iterable[Operation]:
    """What a value shares its memory with: `layer.weight` of `layer.weight.data`, or is one of, `model.parameters()`"""
    return closure(
        value.operations, lambda each: given(each) if each.name.endswith((".data", ".detach", "iterate")) else ()
    )


def given(operation: Operation) -> frozenset[Operation]:
    """The operations whose results one is given, or what holds them."""
    return operation.given


def all_held(values: Iterable[Value]) -> frozenset[Operation]:
    """The operations that give some values, or what is in them."""
    return frozenset(each for value in values for each in held(value))


def _innermost(region: Region) -> frozenset[Region]:
    """The loops that are next around a region, on each way to it."""
    found, seen, pending = set[Region](), set[Region](), [region]
    while pending:
        each = pending.pop()
        if each.kind == "loop":
            found.add(each)
        elif each not in seen:
            seen.add(each)
            pending += [each.parent, *each.others] if each.parent is not None else each.others
    return frozenset(found)


def _yields(loop: Region) -> bool:
    """Whether a loop of a generator gives something in each of its rounds."""
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in walk(loop.node))


def _place(operation: Operation) -> tuple[object, ...]:
    """Where in a script an operation is, by all calls that lead there."""
    return operation.name, operation.node, *(region.node for region in operation.region.around())
