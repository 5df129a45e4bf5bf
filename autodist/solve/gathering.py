"""Which rows of a rank become those of all ranks, where a loss relates the samples of a batch to each other.

Gathered before they meet, with gradients that flow back to each rank's own rows, the rows of all ranks are the batch
again. What a function or a criterion is given that relates them is gathered where it is called; what is related beside
the step itself, where it is computed or read.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.call import ROWS
from autodist.placement.lattice import is_guessed
from autodist.placement.placements import Placements
from autodist.placement.reading import is_list
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure
from autodist.solve.facts import is_even, is_number_of_samples, is_sum, is_weighted
from autodist.solve.losses import Losses
from autodist.solve.passes import PASSES
from autodist.solve.steps import changes_in_place, given
from autodist.solve.written import covers, is_listing, loops_at, parts_of, read_by
from autodist.source import Source

READ = (BATCH, FIELDS, SAMPLE, "iterate")
"""What gives the samples of a batch."""
OF_TENSORS = frozenset("shape dtype device data grad T mT H mH ndim requires_grad is_cuda layout real imag".split())
"""Attributes that tensors have."""
ALIGNING = frozenset("add multiply divide elementwise loss sample_loss".split())
"""Classes of operations that combine numbers which stand beside each other."""
SIZING = frozenset("getitem view repeat expand".split())
"""Those of operations that are told sizes or bounds."""
LAYERS = ("per_sample", "sequence", "batch_statistic")
"""Classes of the layers that compute with parameters, and of some that do without."""
IN_TURN = " in turn"
"""Ends the order of samples of several batches that are laid behind each other."""


@dataclass(frozen=True)
class Gathered:
    """A rank's rows, or how many they are, that become those of all ranks, with gradients that flow back to its own."""

    source: Source
    node: ast.expr
    placement: Placement


class Gathering:
    """What is gathered, under the plan that losses have at the time."""

    def __init__(self, program: Program, losses: Losses) -> None:
        self._program, self._losses = program, losses
        self._learnt, self._reaching = losses.steps.differentiated, losses.steps.reaching
        self._apart = losses.placements
        self._searched: tuple[Placements, dict[tuple[ast.expr, Value, Region, int], tuple[Gathered, ...]]]
        self._searched = losses.placements, {}

    def gathered_in(self, user: Operation, backward: Operation) -> Iterator[Gathered]:
        """The rows, and the numbers of rows, of a rank that an operation relates: what the call is given that leads to
        it from a training step, where that is computed by a model, or what it is given itself."""
        known = user.known
        normalises = known is not None and known.cls == "batch_statistic"
        model = known is None and (user.owner is not None or user.name == "call")
        guessed, around = is_guessed(self._losses.placements.of.get(user)), user.region.around()
        in_model = (guessed or normalises) and any(getattr(each.function, "name", "") in PASSES for each in around)
        if model or in_model:
            return  # all ranks would compute the rest of a model for each other, maybe for nothing
        steps = backward.region.within
        calls = [each for each in user.region.around() if each.kind == "call" and each not in steps]
        for call in reversed(calls):
            if found := list(self._arguments(call)):
                yield from found
                return
        for part in read_by(user) if not user.region.has_own_backward else ():
            whole = self._program.at(part)
            value = next((each for each in user.operands if covers(whole, each)), whole)
            changed = (
                bool(user.inputs) and value is user.inputs[0] and (user.name == "setitem" or changes_in_place(user))
            )
            for each in self._made_of(part, value, user) if changed else self._rows(part, value, user):
                yield self._given(each, calls)

    def _given(self, found: Gathered, calls: Iterable[Region]) -> Gathered:
        """The same where a function is called, if it is given there: of `weights(y)`, `y`."""
        made = self._program.at(found.node).operations
        for call in calls if isinstance(found.node, ast.Name) else ():
            if found.source.home(found.node) is not call.function or self._stay_apart_in(made, call):
                break
            same = [each for each in self._parts(call) if self._program.at(each).operations == made]
            if len(same) != 1:
                break
            found = replace(found, node=same[0], source=call.source)
        return found

    def _stay_apart_in(self, made: Iterable[Operation], call: Region) -> bool:
        """Whether a call also computes with some rows what leaves a rank's samples apart."""
        users = {user for each in made for user in self._program.users[each]} & self._reaching
        inside = (user for user in users if call in user.region.around())
        return any(isinstance(self._apart.of.get(each), Shard) for each in inside)

    @staticmethod
    def _parts(call: Region) -> list[ast.expr]:
        """What a call is given, of lists and tuples that are written down there what these hold."""
        if not isinstance(call.node, ast.Call):
            return []
        parts = [*call.node.args, *(each.value for each in call.node.keywords)]
        return [each for part in parts for each in (part.elts if isinstance(part, (ast.List, ast.Tuple)) else [part])]

    def _arguments(self, call: Region) -> Iterator[Gathered]:
        """The rows, and numbers of rows, that a call is given, if a model has computed some of them."""
        parts = self._parts(call)
        rows = [each for each in parts if self._is_rows(self._value(each, call.parent))]
        rows = [each for each in rows if not self._has_fields(self._within(each, call.parent))]
        if not any(self._learnt & self._program.at(each).operations for each in rows):
            return
        for each in rows:
            yield self._gathered(each, call.source)
        for each in parts:
            if counts_samples(self._value(each, call.parent)):
                yield self._counted(each, call.source)

    def _value(self, node: ast.AST, region: Region | None) -> Placement | None:
        """How an expression lies in one context."""
        return self._losses.placements.value(self._within(node, region))

    def _within(self, node: ast.AST, region: Region | None) -> Value:
        """What an expression may evaluate to in one context, or in any, if that is not told."""
        value = self._program.at(node)
        around = region.within if region is not None else frozenset[Region]()
        made = {op for op in value.operations if op.region in around or region in op.region.within}
        return Value(frozenset(made), value.constants, value.things) if made else value

    @staticmethod
    def _is_rows(lying: Placement | None) -> bool:
        """Whether gathered in turn they are those of the batch, or of several behind each other."""
        if not isinstance(lying, Shard) or lying.order and not lying.order.endswith(IN_TURN):
            return False
        return is_even(lying) and not (lying.axis or lying.exponent)

    def _gathered(self, node: ast.expr, source: Source) -> Gathered:
        lying = self._losses.placements.value(self._program.at(node))
        return Gathered(source, node, Shard(0, parts=getattr(lying, "parts", 1)))

    def _counted(self, node: ast.expr, source: Source) -> Gathered:
        """Where a number of rows is to be that of all ranks: where they are counted, or a name of it is read."""
        counts = [e for e in parts_of(node) if is_sum(self._losses.placements.value(self._program.at(e)))]
        if isinstance(node, ast.Name):
            made = {each.node for each in self._program.at(node).operations}
            one = made.pop() if len(made) == 1 else None
            bound = source.parents.get(one) if one is not None else None
            if isinstance(one, ast.expr) and isinstance(bound, ast.Assign) and bound.value is one:
                return self._counted(one, source)
        elif len(counts) == 1 and not isinstance(node, ast.Subscript):
            return self._counted(counts[0], source)
        return Gathered(source, node, Partial("sum", ROWS))

    def _rows(self, node: ast.expr, value: Value, user: Operation, within: int = 8) -> tuple[Gathered, ...]:
        """The rows that an expression is computed from, where they lie one behind the other. What several things are
        computed from is looked at once for all of them."""
        if self._searched[0] is not self._losses.placements:
            self._searched = self._losses.placements, {}
        known, key = self._searched[1], (node, value, user.region, within)
        if key not in known:
            known[key] = tuple(dict.fromkeys(self._rows_of(node, value, user, within)))
        return known[key]

    def _rows_of(self, node: ast.expr, value: Value, user: Operation, within: int) -> Iterator[Gathered]:
        lying = self._losses.placements.value(value)
        bounds = isinstance(node, (ast.Slice, ast.Tuple))  # `out[:k, 0]`
        bounds |= lying is None and isinstance(node, ast.Call) or is_listing(node)  # `list(range(len(x)))`
        if (lying is None or isinstance(lying, Replicate)) and not bounds or not within:
            return
        if counts_samples(lying):
            yield self._counted(node, user.source)
        elif self._is_rows(lying) and not is_list(value):
            whole = list(self._made_of(node, value, user, within)) if getattr(lying, "in_parts", False) else []
            if whole and all(each.placement == Shard(0) for each in whole):
                yield from whole  # several rows of each sample would come in another order than in the batch
            elif not self._has_fields(value):
                yield self._gathered(node, user.source)
        else:
            yield from self._made_of(node, value, user, within)

    def _made_of(self, node: ast.expr, value: Value, user: Operation, within: int = 8) -> Iterator[Gathered]:
        """The rows that go into an expression: what is changed in place is to be whole from the start."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            tests = [test for loop in loops_at(node) if isinstance(loop, ast.comprehension) for test in loop.ifs]
            for part in (*parts_of(node), *tests):
                yield from self._rows(part, self._within(part, user.region), user, within - 1)
            return
        for each in sorted(value.operations, key=lambda op: op.number):
            for part in read_by(each):
                yield from self._rows(part, self._within(part, each.region), each, within - 1)

    def _has_fields(self, value: Value) -> bool:
        """Whether it is no tensor, but what a model of a library gives, of which fields are read: `model(x).logits`"""
        reads = [user.node for op in value.operations for user in self._program.users[op]]
        fields = [each.attr for each in reads if isinstance(each, ast.Attribute)]
        keys = [each.slice for each in reads if isinstance(each, ast.Subscript)]
        named = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in keys)
        return named or any(
            self._program.table.find(f"torch.Tensor.{each}") is None for each in fields if each not in OF_TENSORS
        )

    def fewest(self, found: Collection[Gathered]) -> list[Gathered]:
        """The same, of what is computed from the same rows these alone: of `out` and `2 * out`, `out`."""
        rows = {each.node: each for each in found if each.placement == Shard(0)}
        chains = {node: self._chain(node, each.source) for node, each in rows.items()}
        fewer: dict[ast.expr, Gathered] = {each.node: each for each in found if each.placement != Shard(0)}
        for node, each in rows.items():
            others = {key for other, chain in chains.items() if other is not node for key in chain}
            reads = next((reads for key, reads in chains[node].items() if key in others), [node])
            fewer |= {read: replace(each, node=read) for read in reads}
        return list(fewer.values())

    def _chain(self, node: ast.expr, source: Source) -> dict[frozenset[Operation], list[ast.expr]]:
        """What rows are computed from in a function, each sample apart from the others, as far as that is one value:
        where it is read, from the last to the first."""
        found: dict[frozenset[Operation], list[ast.expr]] = {}
        seen, reads = set[ast.expr](), [node]
        while reads and seen.isdisjoint(reads):
            seen.update(reads)
            keys = {self._program.at(each).operations for each in reads}
            if len(keys) != 1:
                break
            found.setdefault(next(iter(keys)), reads)
            reads = [part for each in reads for part in self._computed_from(each, source)]
        return found

    def _computed_from(self, node: ast.expr, source: Source) -> list[ast.expr]:
        """The rows that others are computed from; nothing where that is not told, or done by a layer."""
        made = self._program.at(node).operations
        if isinstance(node, ast.Name):
            one = next(iter(made)).node if len(made) == 1 and next(iter(made)).name not in READ else None
            here = isinstance(one, ast.expr) and source.parents.get(one) and source.home(one) is source.home(node)
            return [one] if here and isinstance(one, ast.expr) and not isinstance(one, ast.Name) else []
        if not all(each.node is node and self._computes_apart(each) for each in made):
            return []
        ways = self._apart, self._losses.placements  # before anything was gathered, and since
        return [e for e in parts_of(node) if any(self._is_rows(each.value(self._program.at(e))) for each in ways)]

    def _computes_apart(self, operation: Operation) -> bool:
        """Whether it is no pass of a layer, and draws nothing: of all rows, all ranks would do that for each other."""
        known = operation.known
        told = operation.name == "getitem" or known is not None and known.cls not in ("random_like", "random")
        return operation.owner is None and told

    def meeting(self) -> list[Operation]:
        """What combines rows of all ranks with a rank's own, where it is not known how many axes they have, and what
        cuts them or lays them out by how many a rank has."""
        now = self._losses.placements
        found = []
        for user in sorted(self._reaching, key=lambda op: op.number):
            told = user.known
            cls = "getitem" if user.name == "getitem" else told.cls if told is not None else ""
            read = self._read_by(user)
            whole = [op for op, lying in read.items() if lying == Replicate() and self._is_own(op)]
            if cls in ALIGNING:
                rows = [op for op in whole if self._keeps_rows(op)]
                own = [op for op, lying in read.items() if isinstance(lying, Shard)] if rows else []
                counts = any(map(counts_samples, read.values()))  # `weight / weight.sum() * len(weight)`
                if rows and counts or own and any(now.sizes.get(op) is None for op in [*rows, *own]):
                    found.append(user)
            elif cls in SIZING and not user.inputs[0].operations.isdisjoint(whole):
                slices = [bound for op in read if op.name == "builtins.slice" for bound in op.inputs]
                told_by = [*slices, *user.inputs[1:]]
                own_sizes = any(isinstance(now.value(each), (Partial, PerRank)) for each in told_by)
                if own_sizes or any(map(self._numbers_own, told_by)):
                    found.append(user)
        return found + [each for each in self._deciding if isinstance(now.of.get(each), PerRank)]

    @cached_property
    def _deciding(self) -> list[Operation]:
        """What decides over losses, and was not lost before anything was gathered: `y[i]` of `if y[i] != y[j]:`"""
        regions = {region for each in self._reaching for region in each.region.around() if region.kind == "branch"}
        above = closure((op for region in regions for op in region.subject.operations), given)
        beside = {*above} - self._reaching
        return sorted((e for e in beside if not isinstance(self._apart.of.get(e), PerRank)), key=lambda op: op.number)

    def _read_by(self, user: Operation) -> dict[Operation, Placement | None]:
        """How what an operation reads lies there, what is made global for it among it."""
        taken, now = self._losses.plan.taken.get(user, {}), self._losses.placements.of
        return {op: taken.get(op, now.get(op)) for value in user.operands for op in value.operations}

    def _numbers_own(self, key: Value) -> bool:
        """Whether it is made of the number of a sample among a rank's own, which a loop counts: `out[i : i + 1]`"""
        lying = self._losses.placements.value(key)
        return isinstance(lying, Each) and any(op.name == "range.index" for op in closure(key.operations, given))

    def _is_own(self, operation: Operation) -> bool:
        """Whether it was different on each rank before anything was gathered."""
        return self._apart.of.get(operation) not in (None, Replicate())

    def _keeps_rows(self, operation: Operation) -> bool:
        """Whether it may have a row for each sample, for all that is known of its axes."""
        known = operation.known
        axis = operation.argument("dim", 1) if known is not None and known.cls == "reduction" else None
        summed = known is not None and known.cls == "reduction" and (axis is None or axis.constant in (0, None))
        return not summed and self._losses.placements.sizes.get(operation) != ()

    def are_in_vain(self, mends: Iterable[object]) -> bool:
        """Whether a layer is given rows of all ranks, or noise is drawn for them: each rank would compute what follows
        for all of them. Or whether they meet a rank's own rows where nothing was lost before."""
        if self._meet_own():
            return True
        nodes = {each.node for each in mends if isinstance(each, Gathered)}
        made = {op for node in nodes for op in self._program.at(node).operations if op.node is node}
        read = {op for op in self._reaching if not nodes.isdisjoint(read_by(op))}
        below = self._program.depending(read | {user for each in made for user in self._program.users[each]})
        before, now = self._apart.of, self._losses.placements.of
        given_whole = (each for node in nodes for each in self._program.at(node).operations)
        whole = {each for each in self._reaching if now.get(each) == Replicate() != before.get(each)} - {*given_whole}
        for each in (below | whole) & self._reaching:
            roles: frozenset[str] = getattr(each.owner, "roles", frozenset())
            known = each.known
            cls = known.cls if known is not None else ""
            if (
                "module" in roles
                and "loss" not in roles
                and (cls in LAYERS or not cls and each in below)
                or cls == "random_like"
            ):
                return True
        return False

    def _meet_own(self) -> bool:
        """Whether rows of all ranks meet a rank's own where nothing was lost before, or beside the losses."""
        before, now = self._apart, self._losses.placements
        lost = (each for each, lying in now.of.items() if isinstance(lying, PerRank))
        if any(not isinstance(before.of.get(each), PerRank) for each in lost):
            return True
        whole = {e for e, lying in now.of.items() if lying == Replicate() and before.of.get(e) != Replicate()}
        beside = {user for each in whole for user in self._program.users[each]} - self._reaching
        return any(isinstance(lying, Shard) for user in beside for lying in self._read_by(user).values())


def is_lost(lying: Placement | None) -> bool:
    """Whether no average over the ranks is the global value, or one whose ranks count for more or less."""
    return isinstance(lying, PerRank) or lying is not None and is_weighted(lying)


def counts_samples(lying: Placement | None) -> bool:
    """Whether it is how many samples a rank has, or as many times that as all ranks."""
    return is_sum(lying) and is_number_of_samples(lying)
