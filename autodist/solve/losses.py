"""Losses: which of them averaged gradients make those of one process, and which sums in them are multiplied first."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from autodist import operations
from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard, products
from autodist.placement.along import BY_NUMBER, BY_PLACE, NO_SUM, OF_ALL, OF_PART
from autodist.placement.arguments import LEAVING_OUT, SHAPES, call, is_set, option
from autodist.placement.by_number import AS_MANY, MIXED, NONLINEAR, OWN_NUMBER, PAIRED, PRODUCT
from autodist.placement.call import ROWS
from autodist.placement.decided import DECIDED, DECIDED_BEFORE
from autodist.placement.lattice import PIECES, counted, is_linear
from autodist.placement.layout import GROUPED, OF_WHOLE
from autodist.placement.loops import BESIDE_GATHERED, CARRIED, LAST
from autodist.placement.measures import MAY_GROUP, MAY_LACK_AXIS
from autodist.placement.opaque import NOT_KNOWN
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.placement.samples import COUNTING, OF_TIME
from autodist.placement.sizes import AGAIN, OF_ALL_NUMBERS
from autodist.placement.transfer import OF_OTHERS
from autodist.program import SAMPLE, Operation, Program, Region, closure, held, joined
from autodist.solve.sizes import as_slice, first_key, first_slice
from autodist.solve.steps import given, is_constant, steps_of
from autodist.source import Source, walk

ROUNDS = 6
"""`recognition + divergence + penalty` adds one after the other."""
BEHIND = "it is of the samples that a loop elsewhere has taken one by one"
MEETING = frozenset([PAIRED, products.PAIRED, OF_ALL, GROUPED])
"""Why losses get lost in which each sample of a batch meets the others."""
DRAWING = ("random.", "numpy.random.", "torch.rand")
"""Beginnings of the names of what draws which samples are taken."""
ALONG = frozenset([OF_TIME, OF_ALL])
"""Why it matters along which axis samples lie."""
UNSURE = frozenset([MAY_LACK_AXIS, MAY_GROUP])
GROUPING = UNSURE | {GROUPED, OF_WHOLE}
"""Why it matters where the samples are that are laid out."""
BY_ROUND = frozenset([AGAIN, DECIDED, CARRIED, DECIDED_BEFORE, LAST])
"""Why it matters in which round a loop over samples comes to each."""
CERTAIN = MEETING | UNSURE | BY_ROUND | {OF_TIME, OF_WHOLE, BY_NUMBER, AS_MANY, NO_SUM, OF_ALL_NUMBERS, BESIDE_GATHERED}
"""Why losses get lost that is sure to make them others, or so near to it that it has to be said."""
OF_PARTS = frozenset([NONLINEAR, MIXED, OWN_NUMBER, PRODUCT, OF_PART])
"""Why what is computed of sums and means over a rank's samples says nothing of those of all ranks."""
ORDERING = frozenset("argsort sort".split())
FIRST = "it takes those first in an order that each rank has of its own samples"
MEAN, SUM, SAME = Partial("mean", ROWS), Partial("sum"), Replicate()


@dataclass(frozen=True)
class Term:
    """A sum over a rank's samples that a loss adds to means, or to what every rank has: `cross_entropy(x, y) +
    kl.sum()`. N times as large, its mean over the ranks is that of the batch."""

    source: Source
    node: ast.expr
    is_evaluated: bool
    """Whether data that every rank has in full come to the same place, without gradients."""


class Losses:
    """The losses of a program under a plan. What is not known to relate samples is taken to compute each apart, unless
    nothing is to be assumed (``assumes``)."""

    def __init__(self, program: Program, plan: Plan, catalog: Catalog, assumes: bool = True) -> None:
        self._program, self._catalog, self.steps = program, catalog, steps_of(program)
        self.backward = self.steps.backward
        self.ends = {op for each in self.backward for op in held(joined(each.inputs[:1]))}
        self.plan, self.assumed = plan, set[Operation]()
        self.tells_all = False
        """Whether what is lost for want of knowledge is told as well: nothing else knows better."""
        self.placements = propagate(program, plan, catalog=catalog)
        for _ in range(ROUNDS if assumes else 0):
            unknown = [each for each in self._above(self._lost()) if self._is_unknown(each)]
            if not unknown:
                break
            self.assumed.update(unknown)
            self._place(dict.fromkeys(unknown, Shard(0)))

    def _place(self, placed: dict[Operation, Placement]) -> None:
        self.replan(self.plan, placed)

    def replan(self, plan: Plan, placed: dict[Operation, Placement]) -> None:
        """Go on under another plan, with some more values placed."""
        self.plan = replace(plan, placed={**plan.placed, **placed})
        self.placements = propagate(self._program, self.plan, catalog=self._catalog)

    def of(self, node: ast.AST) -> list[Placement]:
        """How the losses of a backward pass lie: of one sample after the other only in the loop that goes over them."""
        found = (each for each in self.backward if each.node is node)
        lying = [(each, self.placements.joint(held(joined(each.inputs[:1])))) for each in found]
        return [
            PerRank("backward", BEHIND) if isinstance(lies, Each) and not self._goes_round_with(each) else lies
            for each, lies in lying
            if lies is not None
        ]

    def _goes_round_with(self, backward: Operation) -> bool:
        """Whether a backward pass is run in each round of the loops that take the samples which its loss is of."""
        of, loops = self.placements.of, backward.region.loops
        ends = held(joined(backward.inputs[:1]))
        above = closure(ends, lambda op: (each for each in given(op) if isinstance(of.get(each), Each)))
        taken = [op for op in above if not any(isinstance(of.get(each), Each) for each in given(op) - {op})]
        listed = {op for loop in loops for op in held(loop.subject)}  # `for image, boxes in zip(*batch)`
        within, elsewhere = _heads(loops), _heads(self._program.loops - loops)

        def is_taken_there(op: Operation) -> bool:
            if op.name == SAMPLE or op.node in elsewhere:
                return op in listed or op.node in within
            return op.region.loops <= loops or op.node in within

        return all(is_taken_there(op) for op in taken if isinstance(of.get(op), Each))

    def _lost(self) -> set[Operation]:
        """The losses that are different on each rank."""
        return {each for each in self.ends if isinstance(self.placements.of.get(each), PerRank)}

    def _above(self, lost: Iterable[Operation]) -> list[Operation]:
        """What made losses different on each rank: of what lies in simple ways itself, and of sizes."""

        def is_lost(op: Operation) -> bool:
            return isinstance(self.placements.of.get(op), PerRank) and op.name not in SHAPES

        found = closure(lost, lambda op: filter(is_lost, given(op)))
        first = [op for op in found if not any(map(is_lost, given(op) - {op}))]
        return sorted({*first}, key=lambda op: op.number)

    def _carried_above(self, lost: Iterable[Operation]) -> list[Operation]:
        """What made losses different on each rank by what earlier rounds left, where it goes round with what is lost by
        it: `loss = 0.9 * loss + term`"""
        above = sorted(closure(lost, lambda op: filter(self._is_lost, given(op))), key=lambda op: op.number)
        return [each for each in above if self.placements.of[each] == PerRank(each.name, CARRIED)]

    def _is_unknown(self, operation: Operation) -> bool:
        lying = self.placements.of.get(operation)
        return isinstance(lying, PerRank) and lying.reason == NOT_KNOWN and lying.operation == operation.name

    def is_of_each_sample(self, node: ast.AST) -> bool:
        """Whether an expression is one sample of a loop, or has a row for each of a rank's samples, of that sample
        alone, and nothing is assumed for it."""
        made = self._program.at(node).operations
        apart = all(isinstance(self.placements.of.get(each), Shard) for each in made)
        return bool(made) and apart and not self.assumed or self.is_of_one_sample(node)

    def is_of_one_sample(self, node: ast.AST) -> bool:
        """Whether an expression is computed of one sample that a loop takes, and of nothing else: `row.flip(0)`"""
        made = self._program.at(node).operations
        read = [each for op in made for each in (op, *given(op)) if not is_constant(each)]
        return bool(read) and all(isinstance(self.placements.of.get(each), Each) for each in read)

    def weighted(self) -> Iterator[tuple[Source, ast.AST, str]]:
        """The means that are weighted by what a rank's own labels weigh or leave out, by the option that does it."""
        table, seen = operations.load(), set[ast.AST]()
        above = closure(self.ends, given)
        for each in sorted(above, key=lambda op: op.number):
            lying, known = self.placements.of.get(each), table.find(each.name)
            counts = isinstance(lying, Partial) and lying.reduce == "mean" and lying.weight.startswith(COUNTING)
            if known is None or not counts or "weight" not in known.parameters or each.node in seen:
                continue
            told = [name for name in LEAVING_OUT if is_set(option(each, known, name))]
            if each in self.steps.differentiated:
                seen.add(each.node)
                yield each.source, each.node, next(iter(told), "ignore_index")

    def lost_at(self, lost: Collection[Operation] | None = None) -> Iterator[tuple[Operation, str]]:
        """What losses got lost at for certain, all of them or some, and why: samples that others pick by number, and
        sums and means over a rank's samples that something else is computed with than what adds up."""
        lost = self._lost() if lost is None else lost
        for each in self._above(lost) or self._carried_above(lost):
            lying = self.placements.of[each]
            here = isinstance(lying, PerRank) and lying.operation.rpartition(".")[2] == each.name.rpartition(".")[2]
            reason = lying.reason if here and isinstance(lying, PerRank) else ""
            if self.tells_all or self._is_sure(each, reason):
                yield each, getattr(lying, "reason", "")
            elif each.name.rpartition(".")[2] in ORDERING and reason == OF_ALL:
                yield from ((cut, FIRST) for cut in self._cuts_of(each))

    def _is_sure(self, operation: Operation, reason: str) -> bool:
        """Whether it is for that reason that a loss is another one than that of one process."""
        if reason == OF_ALL:
            return self._is_known_to_mix(operation)
        if reason == BY_PLACE:
            if isinstance(operation.node, ast.Subscript):
                told = not self._program.at(operation.node.value).things
            else:
                told = operation.name != "getitem" or first_slice(operation) is not None  # `out, loss = model(x, y)`
            made = [each for value in operation.inputs[:1] for each in value.operations]
            known = (
                self.placements.sizes.get(e) is not None or operations.load().find(e.name) is not None for e in made
            )
            return told and all(known) and self._takes_told_places(operation)
        if reason == AGAIN and operation.name.endswith("randperm"):
            return False  # which samples it takes is drawn
        parts = [each for each in given(operation) if self._is_part(each)]
        if reason == OF_OTHERS:  # `count += 1` of the samples before it
            return any(each in self._program.cyclic and each.region.loops & operation.region.loops for each in parts)
        return reason in CERTAIN or reason in OF_PARTS and bool(parts)

    def _takes_told_places(self, operation: Operation) -> bool:
        """Whether it takes the same samples of a rank whenever it takes some of them: `x[0]`, `x[2:4]`, `x[places]`"""
        if operation.name.endswith(".unbind"):
            users = self._program.users[operation]
            return bool(users) and all(each.name == "getitem" and self._takes_told_places(each) for each in users)
        selects = operation.name.endswith(".index_select")
        first = operation.argument("index", 2) if selects else first_key(operation)
        cut = as_slice(first) if first is not None else None
        bounds = cut.inputs if cut is not None else [first] if first is not None else []
        told = closure((op for each in bounds for op in held(each)), given)
        alike = all(self.placements.value(each) in (None, Replicate()) for each in bounds)
        rounds = frozenset[Region]().union(*(op.region.loops for op in held(operation.inputs[0])))
        steady = all(op.region.loops <= rounds and not op.name.startswith(DRAWING) for op in told)
        numbers = all(kind in (int, type(None)) for each in bounds for kind, _ in each.constants)
        counting = (op for op in (*told, *filter(None, [cut])) if not op.name.endswith("arange") or len(op.inputs) < 3)
        of_batch = any(self.plan.counts(op, [each]) is not None for op in counting for each in op.inputs)
        return any(map(bool, bounds)) and alike and steady and numbers and not of_batch  # `out[torch.arange(size), y]`

    def _is_known_to_mix(self, operation: Operation) -> bool:
        """Whether it is told that it computes each sample from all: others work along another axis, for all that is
        known of that, or put samples in other places."""
        known = operations.load().find(operation.name)
        if known is None or known.cls not in ("scan", "per_sample", "decomposition"):
            return False
        first, told = self.placements.value(operation.inputs[0]) if operation.inputs else None, call(operation, known)
        if known.cls == "per_sample" and told.mixed is None and (known.short == "pad" or not getattr(first, "axis", 0)):
            return False  # of a sample alone, such layers are given no batch
        return not told.untold and all(self.placements.size(each) is not None for each in operation.inputs[:1])

    def is_lost_at(self, nodes: Collection[ast.AST], backward: ast.AST) -> bool:
        """Whether the loss of a backward pass got lost for certain where one of some nodes is."""
        return any(each.node in nodes for each, _ in self.lost_at(self._lost_of(backward)))

    def tells_why(self, backward: ast.AST) -> bool:
        """Whether it is told what the loss of a backward pass got lost at."""
        return any(self.lost_at(self._lost_of(backward)))

    def adds_rounds(self, backward: ast.AST) -> bool:
        """Whether a loss is the mean of what rounds over samples have added up, for which nothing is assumed."""
        lying, above = self.of(backward), closure(self._ends_of(backward), given)
        by_one = any(isinstance(self.placements.of.get(each), Each) for each in above)
        return bool(lying) and all(each == MEAN for each in lying) and by_one and self.assumed.isdisjoint(above)

    def _lost_of(self, backward: ast.AST) -> set[Operation]:
        return self._lost().intersection(self._ends_of(backward))

    def _ends_of(self, backward: ast.AST) -> set[Operation]:
        """What a backward pass is begun with."""
        return {op for each in self.backward if each.node is backward for op in held(joined(each.inputs[:1]))}

    def goes_by_numbers(self, node: ast.AST) -> bool:
        """Whether it is for the numbers that ranks give their own samples that an expression is each rank's own."""
        above = self._above(each for each in self._program.at(node).operations if self._is_lost(each))
        reasons = {getattr(self.placements.of[each], "reason", "") for each in above}
        return bool(reasons) and reasons <= BY_ROUND

    def may_pair(self, node: ast.AST) -> bool:
        """Whether what takes samples by places may pair them with others, and is not told of for their numbers."""
        return not self.goes_by_numbers(node) and not self.is_of_one_sample(node)

    def met_at(self) -> Operation | None:
        """Where each sample of a batch meets the others for certain, so that a loss of some of them is another one."""
        return next((each for each, reason in self.lost_at() if reason in MEETING), None)

    def _cuts_of(self, order: Operation) -> Iterator[Operation]:
        """What takes a number of samples by their places in an order that goes by what they are: `each[order][:8]`."""
        apart = closure([order], lambda op: (e for e in self._program.users[op] if self._is_lost(e)))
        learnt = (each for each in apart if each.name == "getitem" and each in self.steps.reaching)
        for each in sorted(learnt, key=lambda op: op.number):
            cut = first_slice(each)
            bounds = cut.inputs[:2] if cut is not None and given(each) - {cut} <= apart else ()
            lying = [self.placements.value(bound) for bound in bounds]
            told = [type(bound.constant) is int and bound.constant != 0 for bound in bounds]
            if any(told) or any(counted(each).startswith(f"{ROWS} // ") for each in lying):
                yield each

    def _is_lost(self, operation: Operation) -> bool:
        return isinstance(self.placements.of.get(operation), PerRank)

    def _is_part(self, operation: Operation) -> bool:
        """Whether it is a sum or mean over a rank's samples, or a number of them."""
        lying = self.placements.of.get(operation)
        return isinstance(lying, Partial) and is_linear(lying)

    # sums that are multiplied

    def sums(self) -> Iterator[ast.AST]:
        """The backward passes of losses that are sums over samples."""
        for node in dict.fromkeys(each.node for each in self.backward):
            lying = self.of(node)
            summed = [each == SUM or isinstance(each, Each) and not each.over for each in lying]
            if any(summed) and all(one or each == SAME for one, each in zip(summed, lying, strict=True)):
                yield node

    def in_pieces(self) -> Iterator[ast.AST]:
        """The backward passes of pieces of a batch of which it is told how large they are: `for part in x.split(4)`."""
        for node in dict.fromkeys(each.node for each in self.backward):
            if any(isinstance(each, Each) and each.loop == PIECES and not each.over for each in self.of(node)):
                yield node

    def terms(self) -> list[Term]:
        """The sums that are multiplied by the number of ranks, where that makes losses means over the ranks."""
        found: dict[ast.expr, Term] = {}
        before = self._lost()
        for _ in range(ROUNDS):
            fresh = {each.node: each for op in self._above(self._lost()) for each in self._terms_of(op)}
            if fresh.keys() <= found.keys():
                break
            found |= fresh
            self._place({op: MEAN for node in fresh for op in self._program.at(node).operations if self._is_sum(op)})
        return list(found.values()) if self._lost() < before else []

    def _is_sum(self, operation: Operation) -> bool:
        lying = self.placements.of.get(operation)
        return lying == SUM or isinstance(lying, Each) and not lying.over

    def _terms_of(self, operation: Operation) -> Iterator[Term]:
        """The sums that an operation adds to what is none."""
        known = operations.load().find(operation.name)
        node = operation.node
        if known is None or known.cls != "add" or not isinstance(node, (ast.BinOp, ast.AugAssign)):
            return
        others = {op for value in operation.operands for op in value.operations} - {operation}
        if any(not isinstance(self.placements.of.get(each, SAME), (Partial, Replicate, Each)) for each in others):
            return
        learnt = self.steps.differentiated
        for part in [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]:
            made = self._program.at(part).operations
            summed = [each for each in made if self._is_sum(each)]
            rest = made - {*summed}
            alike = all(self.placements.of.get(each, SAME) == SAME for each in rest)
            told_apart = all(each.region.without_gradients for each in rest)
            if summed and alike and told_apart and learnt.issuperset(summed):
                yield Term(operation.source, part, bool(rest))


def _heads(loops: Iterable[Region]) -> set[ast.AST]:
    """What loops are written to go over."""
    return {part for loop in loops if isinstance(loop.node, ast.For) for part in walk(loop.node.iter)}
