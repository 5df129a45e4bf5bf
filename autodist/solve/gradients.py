"""What makes a loss that of the whole batch where the mean of the ranks' losses is none.

A mean over other numbers than those of the samples is weighed by its share of them. Where a loss is computed from sums
and means over the batch in another way than by adding them up, as a dice loss is, it is where these are taken over all
ranks, and gradients with them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from autodist.placement import Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.plan import Plan
from autodist.placement.sizes import AGAIN
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held, joined
from autodist.solve.alone import Alone
from autodist.solve.cuts import made_global
from autodist.solve.demands import Demand
from autodist.solve.facts import is_extreme, is_mean, is_sum, is_weighted
from autodist.solve.gathering import Gathered, Gathering, counts_samples, is_lost
from autodist.solve.losses import GROUPING, MEAN, Losses
from autodist.solve.search import Cut
from autodist.solve.steps import given
from autodist.solve.weights import Divisor, Weights, unpacked
from autodist.solve.written import covers, parts_of, read_by
from autodist.source import Source, last_name, walk

ROUNDS = 8
"""Sums of what is computed from other sums are found once those are taken over all ranks."""
BOUNDING = frozenset("clamp clamp_min max maximum".split())
"""What keeps a number from being too small: that of all ranks is to be bounded once."""
REPEATING = frozenset("expand expand_as repeat sum mean".split())
"""What gives a sum several times, or adds up several."""
LINEAR = frozenset("add same linear reduction squeeze view flatten".split())
"""Classes of operations of which sums and means over the ranks are those of what they are given."""
PLACING = ("getitem", "setitem", "iterate", "recursion")
LAYING_OUT = frozenset(
    "scatter places filter index gather select view view_as permute transpose movedim flatten unflatten squeeze "
    "unsqueeze expand repeat repeat_each concatenate stack add multiply divide same linear elementwise sample_loss "
    "loss".split()
)
"""Classes of operations that put numbers elsewhere, or compute each of those that stand in one place."""


@dataclass(frozen=True)
class Weighed:
    """A mean over other numbers than those of the samples, and what it is divided by."""

    source: Source
    node: ast.expr
    divisor: Divisor


@dataclass(frozen=True)
class Joined:
    """A sum or mean over a rank's samples that is taken over all ranks. ``is_evaluated`` where it is also computed of
    what all ranks have, without gradients; ``learnt`` where gradients flow through it."""

    source: Source
    node: ast.expr
    placement: Placement
    is_evaluated: bool = False
    learnt: bool = True


Mend: TypeAlias = Weighed | Joined | Gathered
Key: TypeAlias = tuple[type[Mend], ast.expr]


class Gradients:
    """What makes losses those of the whole batch, under a plan that averages gradients."""

    def __init__(self, program: Program, losses: Losses, alone: Alone) -> None:
        self._program, self._losses, self._alone = program, losses, alone
        self._learnt, self._reaching = losses.steps.differentiated, losses.steps.reaching
        self._together = {op: group for group in program.cycles for op in group}
        self._region = program.operations[0].region if program.operations else None
        self._gathering = Gathering(program, losses)

    def mended(self, taken: Collection[ast.AST] = (), gathering: Collection[ast.AST] = ()) -> dict[ast.AST, list[Mend]]:
        """What is weighed, joined or, for some losses, gathered, so that they are exact, by their backward passes:
        nothing is done in vain. On the way to those that are ``taken`` for known, what is not known is as if it left
        samples apart."""
        found: dict[Key, Mend] = {}
        passes: dict[ast.AST, list[Mend]] = {}
        for node in dict.fromkeys(each.node for each in self._losses.backward):
            before = self._losses.plan, self._losses.placements
            more = self._mended(node, found, node in taken, node in gathering)
            if more is None:
                self._losses.plan, self._losses.placements = before
            else:
                found |= more
                passes[node] = [*more.values()]
        return passes

    def _mended(self, node: ast.AST, before: dict[Key, Mend], is_taken: bool, gathers: bool) -> dict[Key, Mend] | None:
        """What makes the loss of one backward pass exact; None if nothing does."""
        backward = [each for each in self._losses.backward if each.node is node]
        ends = [op for each in backward for op in held(joined(each.inputs[:1]))]
        found: dict[Key, Mend] = {}
        plan = self._losses.plan
        for _ in range(ROUNDS):
            lying = [(each, self._lies(each)) for each in ends]
            lost = [each for each, lies in lying if is_lost(lies) or is_extreme(lies) or isinstance(lies, Shard)]
            meeting = self._gathering.meeting() if gathers and not lost else []
            if not lost and not meeting:
                found = self._needed(found, plan, ends) if gathers else found
                return None if gathers and self._gathering.are_in_vain(found.values()) else found
            if not gathers and self._average(lost):
                continue
            firsts: Iterable[Mend] = self._first(lost)
            if gathers:
                users = meeting or self._firsts(lost)
                firsts = (cut for each in users for cut in self._gathering.gathered_in(each, backward[0]))
            first: dict[Key, Mend] = {(type(each), each.node): each for each in firsts}
            fresh = {key: each for key, each in first.items() if key not in found and key not in before}
            if gathers and fresh:
                rows = self._gathering.fewest([e for e in (found | fresh).values() if isinstance(e, Gathered)])
                found = {(Gathered, each.node): each for each in rows}
                self._losses.plan = plan
                self._take(rows)
                continue
            if not fresh and not self._count_all(lost) and not (is_taken and self._take_apart(lost)):
                return None
            found |= fresh
            self._take([*fresh.values()])
        return None

    def _needed(self, found: dict[Key, Mend], plan: Plan, ends: list[Operation]) -> dict[Key, Mend]:
        """The same without numbers of rows that are those of all ranks already: these are counted in what is
        gathered."""
        for key in [key for key, each in found.items() if counts_samples(getattr(each, "placement", None))]:
            fewer = {other: each for other, each in found.items() if other != key}
            self._losses.plan = plan
            self._take([*fewer.values()])
            if not any(map(self._is_lost, ends)) and not self._gathering.meeting():
                found = fewer
            else:
                self._losses.plan = plan
                self._take([*found.values()])
        return found

    def _lies(self, operation: Operation) -> Placement | None:
        return self._losses.placements.of.get(operation)

    def _is_lost(self, operation: Operation) -> bool:
        return is_lost(self._lies(operation))

    def _firsts(self, lost: Iterable[Operation]) -> list[Operation]:
        """Where losses got lost: of what is not, or of what an earlier round has left."""
        above = closure(lost, lambda op: filter(self._is_lost, given(op)))

        def begins(operation: Operation) -> bool:
            rest = given(operation) - self._together.get(operation, frozenset([operation]))
            return not any(self._is_lost(each) and not self._numbers_own(each) for each in rest)

        return sorted(filter(begins, above), key=lambda op: op.number)

    def _numbers_own(self, operation: Operation) -> bool:
        """Whether it gives a number for each of a rank's samples, by which they may be found: `torch.arange(len(x))`"""
        lying = self._lies(operation)
        return isinstance(lying, PerRank) and bool(lying.rows) and lying.reason == AGAIN

    def _first(self, lost: Iterable[Operation]) -> Iterator[Mend]:
        """What to weigh or to join where losses got lost: of what is not lost itself."""
        first = self._firsts(lost)
        means = [each for each in first if not isinstance(self._lies(each), PerRank)]
        for node in dict.fromkeys(each.node for each in means):
            here = [each for each in means if each.node is node]
            weighed = self._weighed(node, here)
            if weighed is not None:
                yield weighed
            else:  # a sum over a sum: of all ranks that by which it is divided
                yield from (cut for each in here for cut in self._joined_in(each) if self._is_below(cut.node, each))
        for each in first:
            if isinstance(self._lies(each), PerRank):
                yield from self._joined_in(each)

    def _average(self, lost: Iterable[Operation]) -> bool:
        """Take each of a rank's samples with their mean added for samples where another mean is taken of them, which is
        that of all ranks: `(each + each.mean()).mean()`. Whether there are any."""
        found = [each for each in self._firsts(lost) if self._adds_mean(each) and self._is_averaged(each)]
        self._losses.replan(self._losses.plan, dict.fromkeys(found, Shard(0)))
        return bool(found)

    def _adds_mean(self, operation: Operation) -> bool:
        known = operation.known
        lying = [self._losses.placements.value(each) for each in operation.inputs]
        return (
            known is not None
            and known.cls == "add"
            and len(lying) == 2
            and Shard(0) in lying
            and any(map(is_mean, lying))
        )

    def _is_averaged(self, operation: Operation) -> bool:
        """Whether nothing but sums and means is made of it, up to the losses."""
        below = closure([operation], lambda op: self._reaching.intersection(self._program.users[op]))
        known = [each.known for each in below]
        linear = all(each is not None and each.cls in LINEAR for each in known)
        summed = all(each is None or each.cls != "reduction" or each.kind in ("mean", "sum") for each in known)
        return linear and summed and not below.isdisjoint(self._losses.ends)

    def _count_all(self, lost: Iterable[Operation]) -> bool:
        """Take numbers of samples for those of all ranks by which something is divided that is: they become so where
        what losses go by is made global. Whether there are any."""
        found = {
            op
            for each in self._firsts(lost)
            if isinstance(self._lies(each), PerRank) and len(each.inputs) == 2
            for one, other in (each.inputs, each.inputs[::-1])
            for op in other.operations
            if counts_samples(self._lies(op)) and self._is_told_beside(one, each)
        }
        self._losses.replan(self._losses.plan, dict.fromkeys(found, Replicate()))
        return bool(found)

    def _take_apart(self, lost: Iterable[Operation]) -> bool:
        """Take what only lays out or picks numbers as if it left samples apart, where it is not known along which axis.
        Whether there is anything."""
        lying = [(each, self._lies(each)) for each in self._firsts(lost)]
        lying = [(each, lies) for each, lies in lying if isinstance(lies, PerRank) and self._lays_out(each)]
        found = [each for each, lies in lying if getattr(lies, "reason", "") not in GROUPING]
        self._losses.replan(self._losses.plan, dict.fromkeys(found, Shard(0)))
        return bool(found)

    @staticmethod
    def _lays_out(operation: Operation) -> bool:
        known = operation.known
        return operation.name in PLACING or known is not None and known.cls in LAYING_OUT

    def _is_told_beside(self, value: Value, operation: Operation) -> bool:
        """Whether a number of samples beside a value is one by which it is multiplied, or divided if all ranks have
        it."""
        known, lying = operation.known, self._losses.placements.value(value)
        multiplied = known is not None and known.cls == "multiply" and lying == Shard(0)
        return multiplied or lying == Replicate() and value is operation.inputs[0]

    def _take(self, mends: Collection[Mend]) -> None:
        """Take means for weighed, and sums for joined."""
        losses, region = self._losses, self._region
        assert region is not None
        demand = Demand("loss", self._program.operations[0])
        rest = [each for each in mends if not isinstance(each, Weighed)]
        cuts = [Cut(each.source, each.node, each.placement, demand, region) for each in rest]
        placed: dict[Operation, Placement] = {
            op: MEAN
            for each in mends
            if isinstance(each, Weighed)
            for op in self._program.at(each.node).operations
            if isinstance(self._lies(op), Partial)
        }
        plan = losses.plan
        for scale in sorted({getattr(each.placement, "exponent", 0) for each in cuts}) or [0]:
            alike = [each for each in cuts if getattr(each.placement, "exponent", 0) == scale]
            plan = made_global(alike, self._program, plan, Replicate(scale))
        losses.replan(plan, placed)

    def _weighed(self, node: ast.AST, means: list[Operation]) -> Weighed | None:
        """A mean whose divisor the source tells. What some ranks may not compute, or not as often, is left as it is:
        weighing takes all of them."""
        if not isinstance(node, ast.expr) or not all(map(self._come_alike, means)):
            return None
        if any(each.region.without_gradients for each in means) or self._learnt.isdisjoint(means):
            return None  # of numbers that no gradient flows through each is made that of all ranks
        divisor = Weights(self._program, self._losses.placements, self._learnt).of(node, means)
        return Weighed(means[0].source, unpacked(node, means[0]), divisor) if divisor is not None else None

    def _come_alike(self, operation: Operation) -> bool:
        """Whether all ranks come to an operation alike: not rank 0 alone, by a test of their own samples, or once for
        each of their own."""
        if self._alone.around(operation.node, operation.source) is not None or self._alone.calls(operation):
            return False
        for region in operation.region.around():
            if region.kind == "loop" and region in self._losses.placements.sample_loops:
                return False
            if region.kind == "branch" or region.kind == "loop" and isinstance(region.node, ast.While):
                if not self._is_decided_alike(region):
                    return False
        return True

    def _is_decided_alike(self, region: Region) -> bool:
        lying = self._losses.placements.value(region.subject)
        return lying is None or isinstance(lying, Replicate) or is_sum(lying) and not is_weighted(lying)

    # sums that are joined

    def _joined_in(self, user: Operation) -> Iterator[Joined]:
        """The sums and means over a rank's samples that an operation computes with."""
        for part in read_by(user):
            whole = self._program.at(part)
            value = next((each for each in user.operands if covers(whole, each)), whole)
            if self._is_partial(value):
                made = self._made(part, user.source, self._losses.placements.value(value))
                if (found := self._joined(made, user)) is not None:
                    yield found
        if isinstance(user.node, ast.AugAssign):  # `loss += penalty`
            for op in user.inputs[0].operations if self._is_partial(user.inputs[0]) else ():
                if isinstance(op.node, ast.expr) and (found := self._joined(op.node, user)) is not None:
                    yield found

    def _is_below(self, node: ast.expr, quotient: Operation) -> bool:
        """Whether something is what a quotient is divided by."""
        below = self._program.at(node).operations
        return len(quotient.inputs) == 2 and not below.isdisjoint(closure(quotient.inputs[1].operations, given))

    def _is_partial(self, value: Value) -> bool:
        lying = self._losses.placements.value(Value(value.operations))
        return is_sum(lying) or is_mean(lying) or lying is not None and is_weighted(lying)

    def _joined(self, node: ast.expr, user: Operation) -> Joined | None:
        made = sorted(self._program.at(node).operations, key=lambda op: op.number)
        source = next((each.source for each in made if each.node is node), user.source)
        told = [each for each in made if self._is_partial(Value(frozenset([each])))]
        named = isinstance(node, ast.Name) and self._scales(user)
        if not (named or any(self._reduces(each) for each in walk(node))) or source.is_reported(node):
            return None
        counts = all(counts_samples(self._lies(each)) for each in told)
        scales = self._scales(user) or user in self._learnt and not counts
        if not scales and (counts or all(map(self._measures, told))) or not any(map(self._has_samples, told)):
            return None  # tensors are laid out by how many numbers a rank has, or are as long as a batch by chance
        if not told or not all(map(self._come_alike, told)):
            return None
        lying = self._losses.placements.joint(told)
        whole = [each for each in made if isinstance(self._lies(each), Replicate)] if is_sum(lying) else []
        if lying is None or is_weighted(lying) or any(not each.region.without_gradients for each in whole):
            return None  # a sum of what all ranks have would be another one
        return Joined(source, node, lying, bool(whole), not self._learnt.isdisjoint(made))

    @staticmethod
    def _scales(operation: Operation) -> bool:
        """Whether it multiplies or divides what it is given: `x / len(x)`"""
        known = operation.known
        return known is not None and known.cls in ("multiply", "divide")

    def _has_samples(self, operation: Operation) -> bool:
        """Whether it is computed from what a plan shares out."""
        plan = self._losses.plan
        shared = {*plan.placed, *plan.taken}
        above = closure([operation], given)
        return any(each.name in (BATCH, FIELDS, SAMPLE, "iterate") or each in shared for each in above)

    def _measures(self, operation: Operation) -> bool:
        """Whether it tells how large a tensor is: `x.numel()`"""
        known = operation.known
        return known is not None and known.cls == "length"

    def _reduces(self, node: ast.AST) -> bool:
        """Whether it is here that a sum or mean is taken of samples, or these are counted."""
        made = self._program.at(node).operations if isinstance(node, (ast.Call, ast.Subscript)) else ()
        return any(self._is_partial(Value(frozenset([op]))) and not self._is_given_partial(op) for op in made)

    def _is_given_partial(self, operation: Operation) -> bool:
        return any(self._is_partial(Value(frozenset([each]))) for each in given(operation))

    def _made(self, node: ast.expr, source: Source, lying: Placement | None) -> ast.expr:
        """What a name is bound to, in the one place where it is: of `2 * inter + smooth`, what `inter` is."""
        linear = (ast.Mult, ast.Div, ast.Add, ast.Sub) if is_mean(lying) else (ast.Mult, ast.Div)
        if isinstance(node, ast.BinOp) and isinstance(node.op, linear):
            sides = [each for each in (node.left, node.right) if not self._is_alike(each)]
            divided = isinstance(node.op, ast.Div) and sides[:1] != [node.left]
            if len(sides) == 1 and self._lies_alike(sides[0], lying) and not divided:
                return self._made(sides[0], source, lying)
        if isinstance(node, ast.Call) and last_name(node.func) in BOUNDING | REPEATING:
            inner = [each for each in parts_of(node) if self._lies_alike(each, lying)]
            if len(inner) == 1:
                return self._made(inner[0], source, lying)
        if isinstance(node, (ast.Name, ast.Attribute)) and not counts_samples(lying):  # which shape tensors, too
            made = {each.node for each in self._program.at(node).operations if not self._losses.placements.begins(each)}
            if len(made) == 1 and isinstance(one := made.pop(), ast.expr) and one is not node:
                above = source.parents.get(one)
                above = source.parents.get(above) if isinstance(above, ast.Tuple) else above
                here = isinstance(above, ast.Assign) and source.function(one) is source.function(node)
                if (
                    here
                    or isinstance(above, (ast.Assign, ast.Return))
                    and isinstance(one, ast.Call)
                    and self._reduces(one)
                ):  # `mean, variance = self.of(x)`
                    return self._made(one, source, lying) if isinstance(one, ast.Call) else one
        return node

    def _is_alike(self, node: ast.expr) -> bool:
        return self._losses.placements.value(self._program.at(node)) in (None, Replicate())

    def _lies_alike(self, node: ast.expr, lying: Placement | None) -> bool:
        """Whether it is such a sum or mean, in some context."""
        found = [self._lies(each) for each in self._program.at(node).operations]
        return any(isinstance(e, Partial) and isinstance(lying, Partial) and e.reduce == lying.reduce for e in found)
