"""From what is demanded back to the expressions that can be made global."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import is_repeated, keys_of
from autodist.placement.loops import is_of_one
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Region, Value, held, joined
from autodist.solve.demands import Demand
from autodist.solve.facts import ALONE, EITHER, LEARNT, ONE_BY_ONE, Facts, around, is_even, is_mean, is_sum, is_weighted
from autodist.solve.written import (
    assigned,
    contents,
    covers,
    holds,
    is_flat,
    is_listing,
    loop_over,
    loops_at,
    parts_apart,
    parts_of,
    put_in,
    written,
)
from autodist.source import Source, all_of, walk
from autodist.trace.attributes import ordered
from autodist.trace.things import Object

LIBRARY = frozenset("module optimizer scheduler loader dataset sampler scaler".split())
"""Roles of objects whose contents are seen to elsewhere, or are no numbers."""
TEXTS = ("str.format", "str.join", "builtins.str", "builtins.repr", "json.dumps")
"""Ends of the names of operations that put texts together."""
CHANGED = "it is changed where it stands"
NESTED = "it holds lists or objects that hold it"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Cut:
    """An expression to make global, by how it lies; one that cannot be, if it is different on each rank."""

    source: Source
    node: ast.expr
    placement: Placement
    demand: Demand
    region: Region
    read: frozenset[ast.expr] = frozenset()
    """The expressions that are global where it is, at which it was demanded."""
    switch: str = ""
    """A test that holds in the passes where it has to be made global, if not in all."""
    is_behind: bool = False
    """Whether it is only known once it is global what else has to be: what is computed from it is different on each
    rank."""

    ahead: ast.stmt | None = None
    """The statement ahead of which it is made global, since only rank 0 comes into it."""

    is_kept: bool = False
    """Whether it is given to a function that keeps samples one by one, for later steps to train on."""

    @property
    def is_met(self) -> bool:
        """Whether a communication makes it global."""
        if isinstance(self.placement, Replicate):
            return self.placement.exponent == -1
        if isinstance(self.placement, Shard) and not is_even(self.placement):
            return False
        return isinstance(self.placement, (Partial, Shard)) and not self.placement.exponent


def is_in_place(operation: Operation) -> bool:
    """Whether a method changes its owner, of which a reduced value would be a copy: `self.mean.data.copy_(mean)`"""
    func = getattr(operation.node, "func", None)
    return isinstance(func, ast.Attribute) and func.attr.endswith("_") and not func.attr.endswith("__")


class Search:
    """For one demand, from what it is given back to what can be made global."""

    def __init__(self, facts: Facts, demand: Demand) -> None:
        self._facts, self._demand = facts, demand
        self._found: dict[tuple[ast.AST, Value], list[Cut]] = {}
        self._open = set[tuple[ast.AST, Value]]()
        self._met_again = 0
        self._in_part, self._left_out = set[tuple[ast.AST, Value]](), 0

    def given_to(self, operation: Operation, but_owner: bool = False) -> Iterator[Cut]:
        """What to make global of what an operation is given, ``but_owner`` not the object whose method it is."""
        node, parts = operation.node, assigned(operation)
        owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        for given in operation.operands:
            if held(given) and self._facts.has_whole(operation, given):
                continue
            part = next((each for each in parts if covers(self._unpacked(each), given)), None)
            if part is owner is not None and (but_owner or is_in_place(operation)):
                parts.remove(owner)
            elif part is None:
                holder = next((each for each in parts if holds(self._facts.at(each), given)), None)
                found = list(self._taken_from(holder, set(given.operations), operation)) if holder is not None else []
                yield from found or self._of(given)
            else:
                parts.remove(part)
                yield from self.at(part, given, operation)
        if operation.name == "setitem" and not self._facts.is_alike(operation):
            for each in keys_of(operation.inputs[1]):  # `rows[: len(x)] = x`, of a tensor that all ranks have
                places = (op for op in each.operations if op.name == "builtins.slice")
                yield from (cut for op in places for cut in self.given_to(op))

    def _unpacked(self, node: ast.expr) -> Value:
        """What an argument is, or each of those that it stands for: `*losses`"""
        if not isinstance(node, ast.Starred):
            return self._facts.at(node)
        return joined(part for each in self._facts.at(node.value).things for part in contents(each))

    def at(self, node: ast.expr, value: Value, user: Operation) -> list[Cut]:
        """What to make global so that an expression is, which an operation uses."""
        key = node, value
        if node in self._facts.settled:
            return []
        if key in self._open:  # a round of a loop, or a list that holds itself
            self._met_again += 1
            self._left_out += 1
            return []
        if key not in self._found:
            self._found[key] = self._searched(node, value, user)
        self._left_out += key in self._in_part
        return self._found[key]

    def _searched(self, node: ast.expr, value: Value, user: Operation) -> list[Cut]:
        """The same, found once for all demands of a kind, but where a round of a loop leaves something out."""
        about = node, value, user, self._demand.kind, self._facts.is_of_rank_zero(self._demand)
        known = self._facts.searched.get(about)
        if known is not None:
            return [replace(each, demand=self._demand) for each in known]
        key, before = (node, value), self._left_out
        self._open.add(key)
        told = {
            (each.node, each.placement, each.switch, each.is_behind, each.read): each
            for each in self._at(node, value, user)
        }
        found = list(told.values())  # each once, however many ways lead there
        self._open.discard(key)
        if self._left_out == before:
            self._facts.searched[about] = found
        else:
            self._in_part.add(key)
        return found

    def _at(self, node: ast.expr, value: Value, user: Operation) -> Iterator[Cut]:
        if isinstance(node, ast.FormattedValue):
            yield from self.at(node.value, value, user)
            return
        if isinstance(node, ast.Starred):
            inner, whole = node.value, self._facts.at(node.value)
            yield from self.at(inner.elt, value, user) if is_listing(inner) else self.at(inner, whole, user)
            return
        for each in ordered(value.things) if self._demand.kind != "test" else ():
            mine = each.cls is not None and not each.roles & LIBRARY if isinstance(each, Object) else True
            if mine and not is_repeated(each, value):
                yield from self._inside(each, node, user)
        placement = self._facts.placement(value, user)
        if placement is None or placement == Replicate():
            return
        if self._facts.is_of_rank_zero(self._demand) and self._facts.is_first(value):
            return
        if self._demand.kind == "loss" and isinstance(placement, Shard) and user in self._facts.learnt:
            return  # the samples that those are compared to which have gradients
        stays = isinstance(placement, Shard) and self._facts.lies(user) == placement and self._facts.has_sizes(user)
        if self._demand.kind == "loss" and stays:
            return  # what it is compared to is the same on all ranks, and no sample: `(x - mean) / std`
        as_losses = isinstance(placement, Shard) or is_mean(placement)
        if self._demand.kind == "loss" and as_losses and value.operations <= self._facts.learnt:
            return  # it has gradients, and is as it has to be
        if is_of_one(placement) and self._demand.kind != "test":
            lost: PerRank | None = PerRank(user.name, ONE_BY_ONE)
            found = list(self._gone_over(value))
        else:
            lost = placement if isinstance(placement, PerRank) else self._stuck(node, placement, user)
            found = self._instead(node, value, placement, lost, user)
        yield from found or [Cut(user.source, node, lost or placement, self._demand, around(user))]

    def _stuck(self, node: ast.expr, placement: Placement, user: Operation) -> PerRank | None:
        """Why an expression cannot be made global where it stands, if it cannot."""
        above = user.source.parents.get(node)
        changed = isinstance(above, ast.Subscript) and above.value is node and isinstance(above.ctx, ast.Store)
        if changed or isinstance(getattr(node, "ctx", None), ast.Store):
            return PerRank(user.name, CHANGED)
        return self._facts.stuck(node, placement, user, self._demand.kind)

    def _instead(
        self, node: ast.expr, value: Value, placement: Placement, lost: PerRank | None, user: Operation
    ) -> list[Cut]:
        """What to make global in place of an expression: what it is computed from, where it cannot be itself, or where
        that knows more."""
        if lost is not None and lost.reason == EITHER:
            found = list(self._where_bound(node, user)) or list(self._where_called(node, user))
            found = found or list(self._in_some_passes(node, placement, user))
            return found or list(self._behind(node, value))
        if lost is not None and lost.reason == LEARNT and self._facts.learnt.isdisjoint(value.operations):
            # of a report besides a loss
            found = list(self._where_called(node, user)) or list(self._behind(node, value))
            if found and all(each.is_met for each in found):
                return found
        decides = self._demand.kind == "test" and isinstance(node, ast.Name)
        if decides and lost is not None and lost.reason == CHANGED:  # `total /= len(data)`, and `if total < best`
            return list(self._behind(node, value))
        if self._is_lost_behind(placement, lost):
            found = list(self._behind(node, value))
            numbers = [each for each in found if isinstance(each.placement, Partial)]
            if lost_too := [each for each in found if not each.is_met]:  # the samples of others alone would not fit
                found = lost_too
            if any(each.name.endswith(TEXTS) for each in value.operations):
                return found  # each of what a text is put together of stands for itself
            return [
                each if each.is_behind else replace(each, is_behind=True) for each in numbers or found
            ]  # samples, if these do not suffice
        if self._facts.is_bound_alone(node, user):
            lost = PerRank(user.name, ALONE)
            return list(self._behind(node, value)) or [Cut(user.source, node, lost, self._demand, around(user))]
        if lost is not None or not is_weighted(placement):
            return []
        sums = list(self._behind(node, value))
        return sums if all(is_sum(each.placement) for each in sums) else list(self._where_weighed(value, placement))

    def _is_lost_behind(self, placement: Placement, lost: PerRank | None) -> bool:
        """Whether no communication makes a value global, but one of what it is computed from may."""
        if isinstance(placement, PerRank):
            return not self._facts.is_about_sizes(placement, self._demand.kind)
        if isinstance(placement, Replicate):
            return placement.exponent != -1
        if isinstance(placement, (Partial, Shard)) and placement.exponent:
            return True
        if isinstance(placement, Shard) and (placement.order or placement.in_parts or not is_even(placement)):
            return True
        return lost is not None and lost.reason == ONE_BY_ONE and not isinstance(placement, Each)

    def _where_bound(self, node: ast.expr, user: Operation) -> Iterator[Cut]:
        """What to make global of what a loop goes over that binds a name: `for each in (train, test)`."""
        names = {each.id: each for each in walk(node) if isinstance(each, ast.Name)}
        for loop in user.source.ancestors(node):
            if isinstance(loop, FUNCTIONS):
                return
            for each in loops_at(loop):
                bound = names.keys() & {every.id for every in walk(each.target) if isinstance(every, ast.Name)}
                read = {op for name in bound for op in self._facts.at(names[name]).operations}
                if read:
                    apart = {op for op in read if not self._facts.is_alike(op)}
                    found = self._taken_from(each.iter, apart, user)
                    yield from (replace(cut, read=cut.read | {names[name] for name in bound}) for cut in found)
                    return

    def _taken_from(self, node: ast.expr, read: set[Operation], user: Operation) -> Iterator[Cut]:
        """What to make global of some values where an expression puts them together."""
        value = self._facts.at(node)
        if value.operations & read:
            yield from self.at(node, Value(value.operations & read), user)
            return
        inside = [part for thing in value.things for part, _ in written(thing, getattr(thing, "node", None))]
        for part in [*parts_of(node), *inside]:
            yield from self._taken_from(part, read, user)

    def _in_some_passes(self, node: ast.expr, placement: Placement, user: Operation) -> Iterator[Cut]:
        """A sum over what a loader gives, one that is shared out in some passes and one that is not in others: when it
        runs, the loader tells."""
        home = user.source.home(node)
        loops = {loop for each in self._facts.apart_above(self._facts.at(node)) for loop in each.region.loops}
        for loop in sorted(loops, key=lambda each: getattr(each.node, "lineno", 0)):
            if isinstance(loop.node, ast.For) and loop.source is user.source and user.source.home(loop.node) is home:
                over = loop_over(loop.node)
                if self._facts.shared_out(over) == {True, False}:
                    switch = f"isinstance({user.source.code(over)}.sampler, DistributedSampler)"
                    yield Cut(user.source, node, placement, self._demand, around(user), switch=switch)
                    return

    def _where_called(self, node: ast.expr, user: Operation) -> Iterator[Cut]:
        """What to make global of what a function is given that computes an expression: this rank's samples in one
        call, and all samples in another."""
        call = next((each for each in user.region.around() if each.function is not None), None)
        home = user.source.function(node)
        if call is None or call.parent is None or call.function is not home or not isinstance(home, FUNCTIONS):
            return
        given = {each.arg for each in walk(home.args) if isinstance(each, ast.arg)}
        bound = {each.id for each in all_of(home, ast.Name) if isinstance(each.ctx, ast.Store)}
        names = [each for each in walk(node) if isinstance(each, ast.Name) and each.id in given - bound]
        read = {op for each in names for op in self._facts.at(each).operations if not self._facts.is_alike(op)}
        if self._facts.changes(call, read):
            return  # what is reduced is a copy
        for region in (call, *call.others):
            caller = Operation(-1, "call", (), {}, region.source, region.node, region.parent or region)
            for part in parts_of(region.node):
                value = self._facts.at(part)
                if value.operations & read:
                    yield from self.at(part, Value(value.operations & read), caller)

    def _where_weighed(self, value: Value, placement: Placement) -> Iterator[Cut]:
        """Where a mean is taken over numbers of which ranks have more or fewer: there it is known how many they are."""
        found, pending = set(value.operations), [*value.operations]
        while pending:
            each = pending.pop()
            if each in self._facts.learnt:
                return
            fresh = {op for v in each.operands for op in held(v) if self._facts.lies(op) == placement} - found
            found |= fresh
            pending += fresh
            if not fresh and isinstance(each.node, ast.expr):
                if self._facts.is_number(each):
                    yield Cut(each.source, each.node, placement, self._demand, each.region)
                else:  # of each column
                    for picking in self._facts.picking(each):
                        yield from self.given_to(picking)

    def _gone_over(self, value: Value) -> Iterator[Cut]:
        """What to gather so that a loop goes over the samples of all ranks; nothing where it counts them off, or is
        given them by a loader."""
        roots, beside = self._facts.loops_of(value), list[Operation]()
        if numbers := [each for each in roots if "of" in each.keywords]:  # `enumerate(labels)`
            roots = [each for at in numbers for each in self._facts.taken_in(at.region)]
        for each in roots:
            if each.name != "iterate":
                return
            beside += [other for other in self._facts.beside(each) if other not in beside]
        for each in beside:
            over = each.inputs[0]
            if isinstance(each.node, ast.expr) and covers(self._facts.at(each.node), over):
                yield from self.at(each.node, over, each)
            else:
                yield from self.given_to(each)

    def _inside(self, thing: object, node: ast.expr, user: Operation) -> Iterator[Cut]:
        """What to make global of what a list, a dict or an object holds, where it is written down, or was put in."""
        if found := list(self._by_keys(thing)):
            yield from found
            return
        parts = written(thing, node)
        for part, value in parts:
            yield from self.at(part, value, user)
        if not parts:
            summed = list(self._together(thing, node, user)) if self._facts.adds_up(thing) else []
            if summed and all(each.is_met for each in summed):
                yield from summed
                return
            before, stored = self._met_again, self._stored(thing)
            found = stored or []
            if stored is None or not all(each.is_met for each in stored):
                found = list(self._of(Value(things=frozenset([thing])))) or found
            if not all(each.is_met for each in found):
                summed = list(self._together(thing, node, user))
                found = summed if all(each.is_met for each in summed) else found
            yield from found
            if stored is None and not found and self._met_again == before:
                yield from self._together(thing, node, user)

    def _by_keys(self, thing: object) -> Iterator[Cut]:
        """What to make global of what tells under which keys, or at which places, a list or a dict holds something.
        What is counted under them is that of all ranks then, and so is what comes with them."""
        keys = self._facts.keys_of(thing)
        found = [cut for each in keys for cut in self._of(Value(frozenset([each])))]
        loops = {loop for each in keys for loop in self._facts.loops_of(Value(frozenset([each])))}
        beside = {other for each in loops if each.name == "iterate" for other in self._facts.beside(each)}
        for each in sorted({*held(Value(things=frozenset([thing])))} if found else (), key=lambda op: op.number):
            value = Value(frozenset([each]))
            alone = isinstance(self._facts.lies(each), Each) and not self._facts.goes_round(each)
            if alone and not beside.issuperset(self._facts.loops_of(value)):
                found += self._of(value)
        yield from [cut for cut in found if not cut.is_met] or found

    def _stored(self, thing: object) -> list[Cut] | None:
        """What to make global of what a list is given, where it is; None if that is not all that ranks have apart in
        it."""
        apart = {each for each in held(Value(things=frozenset([thing]))) if not self._facts.is_alike(each)}
        puts = []
        for part, user in put_in(thing):
            if apart & {*held(value := self._facts.at(part))}:
                puts.append((part, value, user))
        if not puts or not apart <= {each for _, value, _ in puts for each in held(value)}:
            return None
        return [cut for part, value, user in puts for cut in self.at(part, value, user)]

    def _together(self, thing: object, node: ast.expr, user: Operation) -> Iterator[Cut]:
        """What a list or a dict holds, made global where it is read, if it is not where it is put in: counts that are
        added to."""
        apart = {each for each in held(Value(things=frozenset([thing]))) if not self._facts.is_alike(each)}
        lying = self._facts.joint(apart)
        if lying in (None, Replicate()):
            return
        inner: ast.expr | None = node
        while inner is not None:
            node = inner
            whole = [(each, set(held(self._facts.at(each)))) for each in parts_of(node)]
            inner = next((each for each, inside in whole if inside >= apart), None)
        lost = lying if isinstance(lying, PerRank) else self._facts.stuck(node, lying, user)
        if lost is None and not all(map(is_flat, self._facts.at(node).things)):
            lost = PerRank(user.name, NESTED)
        yield Cut(user.source, node, lost or lying, self._demand, around(user))

    def _of(self, value: Value) -> Iterator[Cut]:
        """What to make global of a value that no expression stands for: what `str(meter)` puts together."""
        if value.things and self._demand.kind == "test":
            value = Value(value.operations)
        for each in sorted({*held(value)}, key=lambda op: op.number):
            yield from self._made(each)

    def _made(self, operation: Operation) -> Iterator[Cut]:
        """What to make global where an operation gives it: of what is added up from round to round, what is added."""
        if self._facts.goes_round(operation):
            for part in parts_apart(assigned(operation)):
                before = self._facts.at(part)
                read = isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))
                if not read or not any(map(self._facts.goes_round, before.operations)):
                    yield from self.at(part, before, operation)
        elif operation.name in (BATCH, FIELDS, SAMPLE):
            return  # the loader stands there
        elif isinstance(operation.node, ast.expr):
            yield from self.at(operation.node, Value(frozenset([operation])), operation)
        else:
            yield from self.given_to(operation)

    def _behind(self, node: ast.expr, value: Value) -> Iterator[Cut]:
        """What to make global of what an expression is computed from: all of it, or nothing."""
        found: list[Cut] = []
        for each in sorted(value.operations, key=lambda op: op.number):
            before = self._met_again
            some = list(self.given_to(each) if each.node is node else self._made(each))
            if not some and not self._facts.is_alike(each) and self._met_again == before:
                return
            found += some
        yield from found
