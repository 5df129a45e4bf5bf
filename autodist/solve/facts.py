"""What is asked of the program and its placements where something is to be made global."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from typing import Any

from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import begins_with_zero, gives_several, keys_of
from autodist.placement.call import ROWS
from autodist.placement.lattice import is_even_number
from autodist.placement.loops import is_of_one
from autodist.placement.placements import Placements
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held
from autodist.solve.alone import Alone
from autodist.solve.demands import SHOWN, Demand
from autodist.solve.steps import all_held, changes_in_place, given, steps_of
from autodist.solve.written import contents, is_flat, readers
from autodist.source import Source, all_of
from autodist.trace.things import Function, Mapping, Object, Sequence

LEARNT = "losses are computed from it: no gradient would flow through the reduced value, nor samples fit a rank's own"
EITHER = "the same code runs on what all ranks have, which would be counted as often as there are ranks"
ALONE = "rank 0 alone has it, and no other rank communicates there"
IN_LOADER = "a loader's workers compute it, which cannot communicate"
ONE_BY_ONE = "it is computed of one sample after the other"

TAKING = ("pop", "popleft")
"""Methods of lists that give what they held."""


class Facts:
    """What placements and the program say of an expression that may be made global."""

    def __init__(
        self, program: Program, placements: Placements, alone: Alone, settled: frozenset[ast.AST] = frozenset()
    ) -> None:
        self.settled = settled
        self._program, self._placements, self._alone = program, placements, alone
        self.searched: dict[Hashable, list[Any]] = {}
        """The cuts that searches have found for expressions, for all demands of a kind."""
        self._steps = steps_of(program)
        self.learnt, self.states, self.carried = self._steps.differentiated, self._steps.states, self._steps.carried

    @cached_property
    def learning(self) -> frozenset[Region]:
        """The parts of the program in which something has gradients."""
        return frozenset(region for each in self.learnt for region in each.region.around())

    def placement(self, value: Value, user: Operation | None = None) -> Placement | None:
        """How a value lies, where ``user`` is given it; where it is that of all ranks in some contexts, as it does in
        the others."""
        taken = self._placements.plan.taken.get(user, {}) if user is not None and self._placements.plan else {}
        found = self._placements.joint(value.operations, taken)
        if found == Partial("sum", exponent=1):
            return Partial("mean", ROWS)  # ranks have as many samples
        if isinstance(found, PerRank) and found.operation == "join":
            return self._placements.joint(each for each in value.operations if not self.is_alike(each))
        return found

    def joint(self, made: Iterable[Operation]) -> Placement | None:
        """How one of several results lies."""
        return self._placements.joint(made)

    def memories(self) -> list[Sequence]:
        """The lists of what earlier steps have put in, which later ones train on."""
        found = {thing: None for op in self._steps.ordered for value in op.operands for thing in value.things}
        found |= dict.fromkeys(thing for each in self._held_by() for thing in self.at(each).things)
        lists = [each for each in found if isinstance(each, Sequence) and self._steps.are_before(each.guards)]
        return sorted(lists, key=lambda each: getattr(each.node, "lineno", 0))

    def _held_by(self) -> Iterator[ast.expr]:
        """What losses are computed from a part of, as far as is known: `pool` of `pool[k].clone()` and `pool.pop()`"""
        users = readers(self._program)
        for node in self._program.values:
            taken = node.func if isinstance(node, ast.Call) else node
            if not isinstance(taken, (ast.Subscript, ast.Attribute)) or not self.is_trained_on(node):
                continue
            takes = isinstance(taken, ast.Subscript) or isinstance(node, ast.Call) and taken.attr in TAKING
            if takes and not self._steps.reaching.isdisjoint(users.get(node, self._steps.reaching)):
                yield taken.value

    def kept(self) -> list[Operation]:
        """What steps keep for later ones, which compute their losses from it, or is put into what is trained: as a sum
        or mean over a rank's samples, or otherwise different on each rank."""
        kept = {each for each in self.carried if not self._steps.follows_gradients(each)}
        kept |= {*self._steps.begun, *self._steps.buffered}
        kept = {each for each in kept if self.barred(each.node, each.source) is None}
        found = (each for each in kept if isinstance(self.lies(each), (Partial, PerRank, Each)))
        return sorted(filter(self._has_samples, found), key=lambda op: op.number)

    def _has_samples(self, operation: Operation) -> bool:
        """Whether it is computed from batches, and not from a tensor that is as long as one by chance."""
        plan = self._placements.plan
        shared = {*plan.placed, *plan.taken} if plan is not None else set()
        changing = operation in self._steps.begun
        computed = closure(all_held([*operation.operands][changing:]), given)
        return any(each.name in (BATCH, FIELDS, SAMPLE) or each in shared for each in (operation, *computed))

    def is_trained_on(self, node: ast.AST) -> bool:
        """Whether losses are computed from what an expression evaluates to."""
        return not self._steps.reaching.isdisjoint(held(self.at(node)))

    def mixed_losses(self) -> list[Operation]:
        """The losses that are different on each rank by what they are computed of."""
        losses = {op for each in self._steps.backward for op in all_held(each.inputs[:1])}
        mixed = {each for each in losses if getattr(self.lies(each), "exponent", 1)}
        return sorted(mixed | self._placements.mixed, key=lambda op: op.number)

    def lies(self, operation: Operation) -> Placement | None:
        """How what an operation gives lies."""
        return self._placements.of.get(operation)

    def adds_up(self, thing: object) -> bool:
        """Whether what a list or a dict holds of a rank's own is added up from round to round."""
        apart = [each for part in contents(thing) for each in part.operations if not self.is_alike(each)]
        return is_flat(thing) and bool(apart) and all(map(self.goes_round, apart))

    def keys_of(self, thing: object) -> list[Operation]:
        """What tells under which keys, or at which places, a list or a dict holds what is not added up there."""
        told = isinstance(thing, Mapping) and not thing.entries
        if not isinstance(thing, (Mapping, Sequence)) or not told and self.adds_up(thing):
            return []
        keys = thing.places.operations | (thing.keys.operations if isinstance(thing, Mapping) else frozenset())
        return sorted(keys, key=lambda op: op.number)

    def is_alike(self, operation: Operation) -> bool:
        """Whether all ranks have what an operation gives."""
        return self._placements.of.get(operation, Replicate()) == Replicate()

    def at(self, node: ast.AST) -> Value:
        """What an expression may evaluate to, in any context."""
        return self._program.at(node)

    def has_sizes(self, user: Operation) -> bool:
        """Whether it is known how large all is that an operation is given."""
        return all(self._placements.size(each) is not None for each in user.operands if each.operations)

    def has_whole(self, user: Operation, value: Value) -> bool:
        """Whether an operation takes all of the data, where others are given each rank's share of them."""
        plan = self._placements.plan
        taken = plan.taken.get(user, {}) if plan is not None else {}
        return bool(taken) and all(taken.get(each) == Replicate() for each in held(value))

    def is_changing(self, operation: Operation) -> bool:
        """Whether it changes what it is given, or is given what it gave in an earlier round."""
        return changes_in_place(operation) or operation.name == "setitem" or self.goes_round(operation)

    def goes_round(self, operation: Operation) -> bool:
        """Whether it is given what it gave in an earlier round of a loop."""
        return operation in self._program.cyclic

    def stuck(self, node: ast.expr, placement: Placement, user: Operation, kind: str = "") -> PerRank | None:
        """Why an expression cannot be made global where it stands for a ``kind`` of demand, if it cannot: what losses
        are computed with may be for these."""
        for_loss = kind == "loss"
        flows = not for_loss or isinstance(placement, Shard) or not self.learnt.isdisjoint(self.at(node).operations)
        trained = (
            kind in SHOWN
            and user in self._steps.reaching
            and (isinstance(placement, Shard) or is_sum(placement) and is_number_of_samples(placement))
            and not self._steps.is_of_module(user)
        )
        learns = not self.learnt.isdisjoint(
            {user, *self.at(user.node).operations}
        )  # in another call of a function, too
        if learns and flows or trained or user.name == "torch.autograd.grad":
            return PerRank(user.name, LEARNT)
        if isinstance(placement, Each) or self._placements.sample_loops & around(user).loops:
            return PerRank(user.name, ONE_BY_ONE)
        if (barred := self.barred(node, user.source)) is not None:
            return PerRank(user.name, barred)
        if any(issubclass(each, str) for each, _ in self.at(node).constants):  # a text, at times
            return PerRank(user.name, EITHER)
        if isinstance(placement, Partial) and placement.reduce != "sum":
            return None
        whole = [each for each in self.at(node).operations if self.is_alike(each) and not self._placements.begins(each)]
        return PerRank(user.name, EITHER) if whole or not begins_with_zero(self.at(node)) else None

    def is_of_rank_zero(self, demand: Demand) -> bool:
        """Whether rank 0 alone shows something, or is given it."""
        operation = demand.operation
        return demand.kind in SHOWN or self._alone.around(operation.node, operation.source) is not None

    def is_first(self, value: Value) -> bool:
        """Whether it is computed of the first sample of a batch, `x[0]`, which rank 0 has."""
        pending = [each for each in value.operations if not self.is_alike(each)]
        seen, found = set(pending), False
        while pending:
            each = pending.pop()
            if not isinstance(self.lies(each), PerRank):
                return False
            if self._takes_first(each):
                found = True
            else:
                fresh = {op for op in each.given if not self.is_alike(op)} - seen
                seen |= fresh
                pending += fresh
        return found

    def _takes_first(self, operation: Operation) -> bool:
        """`x[0]`, `x[0, :3]`"""
        if operation.name != "getitem" or len(operation.inputs) < 2 or not isinstance(self.lies(operation), PerRank):
            return False  # `torch.autograd.grad(loss, x)[0]` takes no sample
        whole = operation.inputs[0]
        if any(each.name == FIELDS or gives_several(each, each.known) for each in whole.operations):
            return False  # `scores.max(1)[0]`
        lying = self._placements.value(whole)
        first = keys_of(operation.inputs[1])[0] if keys_of(operation.inputs[1]) else Value()
        return first.constant == 0 and type(first.constant) is int and lying == Shard(0)

    def apart_above(self, value: Value) -> set[Operation]:
        """What ranks have apart of what a value is computed from."""
        found = closure(value.operations, lambda each: () if self.is_alike(each) else given(each))
        return {each for each in found if not self.is_alike(each)}

    def shared_out(self, node: ast.expr) -> set[bool]:
        """Whether the loaders that an expression may be give each rank its share."""
        loaders = [each for each in self.at(node).things if "loader" in getattr(each, "roles", ())]
        given = [each for each in self._program.operations if each.name in (BATCH, FIELDS) and each.owner in loaders]
        return {isinstance(self.lies(each), Shard) for each in given}

    def barred(self, node: ast.AST, source: Source) -> str | None:
        """Why no rank communicates in the function around a place, if none does."""
        home = source.function(node)
        return ALONE if home in self._run_alone else IN_LOADER if home in self._run_by_loaders else None

    @property
    def _run_alone(self) -> set[ast.AST]:
        """The functions that rank 0 calls alone, or models that it gives to what runs them: `add_graph(model, x)`"""
        known = self._alone.run_alone
        if self._program not in known:
            known[self._program] = self._called_alone() if self._alone else set()
        return known[self._program]

    def _called_alone(self) -> set[ast.AST]:
        found = {each for operation in self._program.operations for each in self._alone.functions(operation)}
        inner = {each for operation in self._program.operations for each in self._forwards_given(operation)}
        for operation in self._program.operations if inner else ():
            within = [each.function for each in operation.region.around() if each.function is not None]
            last = max((at for at, each in enumerate(within) if each in inner), default=-1)
            found |= set(within[: last + 1])
        return found

    def _forwards_given(self, operation: Operation) -> Iterator[ast.AST]:
        """The forward passes of models that an operation of a library is given which rank 0 runs alone."""
        things = [
            each for value in operation.operands for each in value.things if isinstance(each, Object) and each.cls
        ]
        own = operation.name.startswith("torch.nn.Module.")  # `model.state_dict()`
        if (
            not things
            or own
            or operation in self._saving
            or self._alone.around(operation.node, operation.source) is None
        ):
            return
        for each in things:
            found = each.cls.find("forward") if each.cls is not None else None
            yield from (one.node for one in (found[1].things if found else ()) if isinstance(one, Function))

    @cached_property
    def _saving(self) -> set[Operation]:
        return {each.operation for each in self._program.effects if each.kind == "save"}

    @cached_property
    def _run_by_loaders(self) -> set[ast.AST]:
        """The functions that loaders call: data sets' and `collate_fn`."""
        return {each.function for each in self._program.calls if each.function and self._is_loader(each.node)}

    def _is_loader(self, node: ast.AST) -> bool:
        return any("loader" in getattr(each, "roles", ()) for each in self.at(node).things)

    def counts(self, node: ast.AST) -> bool:
        """Whether an expression tells how many numbers a rank has, by which its own are laid out: `len(x) // 2`"""
        inner = {op for each in all_of(node, ast.expr) for op in self.at(each).operations if not self.is_alike(op)}
        if any(is_sum(self.lies(each)) and is_number_of_samples(self.lies(each)) for each in inner):
            return True
        known = [each.known for each in inner]
        return any(each is not None and each.cls == "length" for each in known)

    def is_number(self, operation: Operation) -> bool:
        """Whether it gives one number, as far as is known."""
        sizes = self._placements.sizes.get(operation)
        return sizes == () if sizes is not None else len(list(operation.operands)) < 2

    def picking(self, operation: Operation) -> list[Operation]:
        """What has picked the samples that an operation is given of all that its rank has."""
        picked = closure([operation], lambda each: filter(self._is_picked, given(each))) - {operation}
        return sorted((each for each in picked if not any(map(self._is_picked, given(each)))), key=lambda op: op.number)

    def _is_picked(self, operation: Operation) -> bool:
        lying = self.lies(operation)
        return isinstance(lying, Shard) and lying.rows != ROWS

    def loops_of(self, value: Value) -> list[Operation]:
        """Where loops take the samples one by one that a value is computed from."""
        found, pending = set(value.operations), [*value.operations]
        roots = []
        while pending:
            each = pending.pop()
            if each.name in ("iterate", "range.index", SAMPLE):
                roots.append(each)
                continue
            fresh = {op for v in each.operands for op in v.operations} - found
            fresh = {op for op in fresh if is_of_one(self._placements.of.get(op))}
            found |= fresh
            pending += fresh
        return sorted(roots, key=lambda op: op.number)

    def taken_in(self, loop: Region) -> list[Operation]:
        """What a loop takes of a rank's samples, one by one."""
        taken = (each for each in self._program.operations if each.name == "iterate" and each.region is loop)
        return [each for each in taken if isinstance(self.lies(each), Each)]

    def goes_through(self, test: Operation) -> bool:
        """Whether a loop takes a rank's samples by the number that it goes on by, `while i < len(x):` with `x[i : i +
        8]` in it: as often on all ranks, which have as many each."""
        loop = test.source.parents.get(test.node)
        if not isinstance(loop, ast.While) or loop.test is not test.node:
            return False
        sides = [each.operations for each in test.inputs if not is_number_of_samples(self.placement(each))]
        taken = [each for each in self._program.operations if each.name == "getitem" and len(each.inputs) > 1]
        inside = [each for each in taken if any(region.node is loop for region in each.region.loops)]
        own = [each for each in inside if isinstance(self.placement(each.inputs[0], each), Shard)]
        by = closure((op for each in own for op in each.inputs[1].operations), given)
        return len(sides) == 1 and not sides[0].isdisjoint(by)

    def beside(self, loop: Operation) -> list[Operation]:
        """What a loop takes side by side: of several lists, `zip(guesses, labels)`."""
        found = [each for each in self._program.operations if each.name == "iterate" and each.node is loop.node]
        found = [each for each in found if each.region is loop.region]
        for inside in self._gone_through:
            if loop in inside:
                found += [each for each in inside if each.name == "iterate" and not self.is_alike(each)]
        return found

    @cached_property
    def _gone_through(self) -> list[list[Operation]]:
        """What loops are given."""
        loops = sorted(self._program.loops, key=lambda each: getattr(each.node, "lineno", 0))
        return [list(held(each.subject)) for each in loops]

    def changes(self, call: Region, given: set[Operation]) -> bool:
        """Whether a function changes in place what it is given."""
        return any(each.inputs[0].operations & given for each in self._changing.get(call, ()))

    @cached_property
    def _changing(self) -> dict[Region, list[Operation]]:
        """What changes something in place, by the regions in which it does."""
        found: dict[Region, list[Operation]] = {}
        for each in self._program.operations:
            if each.inputs and (each.name == "setitem" or each.name.endswith("_")):
                for region in each.region.around():
                    found.setdefault(region, []).append(each)
        return found

    def is_about_sizes(self, placement: PerRank, kind: str) -> bool:
        """Whether a tensor got lost where its sizes are written down, which a plan may divide, or are asked for and not
        shown."""
        known = self._program.table.find(placement.operation)
        return known is not None and (known.cls == "view" or known.cls == "length" and kind not in SHOWN)

    def is_bound_alone(self, node: ast.expr, user: Operation) -> bool:
        """Whether rank 0 alone has what an expression is computed from."""
        return self._alone.binds(node, user.source)


def around(user: Operation) -> Region:
    """The region in which an operation is given what it uses: that around a loop which goes over it."""
    region = user.region
    return region.parent if user.name == "iterate" and region.kind == "loop" and region.parent else region


def is_sum(placement: Placement | None) -> bool:
    """Whether it is a sum over the ranks."""
    return isinstance(placement, Partial) and placement.reduce == "sum"


def is_mean(placement: Placement | None) -> bool:
    """Whether it is a mean over as many samples on all ranks."""
    return isinstance(placement, Partial) and placement.reduce == "mean" and not is_weighted(placement)


def is_extreme(placement: Placement | None) -> bool:
    """Whether it is the largest or the smallest of the ranks' values."""
    return isinstance(placement, Partial) and placement.reduce in ("max", "min")


def is_even(placement: Shard) -> bool:
    """Whether ranks have as many samples each, which can be laid between those of others."""
    return not placement.axis and placement.rows == ROWS


def is_number_of_samples(placement: Placement | None) -> bool:
    """Whether it counts samples, of which all ranks have as many."""
    return isinstance(placement, Partial) and is_even_number(placement.weight)


def is_weighted(placement: Placement) -> bool:
    """Whether it is a mean over numbers of which ranks have more or fewer: their sums and counts are reduced."""
    return isinstance(placement, Partial) and placement.reduce == "mean" and not is_even_number(placement.weight)
