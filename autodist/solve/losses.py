"""Losses: which of them averaged gradients make those of one process, and which sums in them are multiplied first."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard, products
from autodist.placement.along import BY_NUMBER, BY_PLACE, NO_SUM, OF_ALL, OF_PART, PLACES_LEFT_OUT, SO_MANY
from autodist.placement.arguments import LEAVING_OUT, SHAPES, call, is_set, option
from autodist.placement.by_number import ADDED, AS_MANY, MIXED, NONLINEAR, OWN_NUMBER, PAIRED, PRODUCT
from autodist.placement.call import ROWS
from autodist.placement.decided import DECIDED, DECIDED_BEFORE
from autodist.placement.in_place import REPLACED
from autodist.placement.lattice import PIECES, counted
from autodist.placement.layout import GROUPED, OF_WHOLE
from autodist.placement.loops import BESIDE_GATHERED, CARRIED, LAST
from autodist.placement.measures import MAY_GROUP, MAY_LACK_AXIS
from autodist.placement.opaque import NODES, NOT_KNOWN, OWN
from autodist.placement.placements import has_gradient
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.placement.reading import BY_OTHERS, MORE, REST
from autodist.placement.samples import COUNTING, NORMALISED, OF_TIME
from autodist.placement.sizes import AGAIN, OF_ALL_NUMBERS
from autodist.placement.transfer import OF_OTHERS, ORDERED
from autodist.program import BATCH, EMPTY, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held, joined
from autodist.solve.facts import is_extreme, is_number_of_samples, is_weighted
from autodist.solve.sizes import as_slice, first_key, first_slice
from autodist.solve.steps import given, steps_of
from autodist.solve.written import code_of
from autodist.source import Source, walk

COUNTED = re.compile(r"([a-z ]*)%(\d+)")
"""What counts rows: an operation by its number, and pieces or words of it."""
ROUNDS = 6
"""`recognition + divergence + penalty` adds one after the other."""
BEHIND = "it is of the samples that a loop elsewhere has taken one by one"
OF_ONE = "it is the largest or smallest of a rank's samples, and each rank has one of its own"
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
CERTAIN |= {NORMALISED, REPLACED, PLACES_LEFT_OUT, SO_MANY, BY_OTHERS, ORDERED, REST, MORE, OF_ONE}
"""Why losses get lost that is sure to make them others, or so near to it that it has to be said."""
OF_PARTS = frozenset([NONLINEAR, MIXED, ADDED, OWN_NUMBER, PRODUCT, OF_PART])
"""Why what is computed of sums and means over a rank's samples says nothing of those of all ranks."""
ORDERING = frozenset("argsort sort".split())
MOVING = frozenset("flip flipud fliplr roll topk".split())
"""The names of what puts each sample in the place of another, or takes some by what they are."""
OF_EACH = "it has a number for each of a rank's samples"
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
        self.plan, self.assumed = plan, set[Operation]()
        self.placements = propagate(program, plan, catalog=catalog)
        self.ends = {op for each in self.backward for op in self._begun_with(each)}
        for _ in range(ROUNDS if assumes else 0):
            unknown = [e for e in self._above(self._lost()) if self._is_unknown(e) or self._is_field(e)]
            if not unknown:
                break
            self.assumed.update(unknown)
            self._place({each: Shard(0, exponent=self._exponent_given(each)) for each in unknown})

    def _place(self, placed: dict[Operation, Placement]) -> None:
        self.replan(self.plan, placed)

    def replan(self, plan: Plan, placed: dict[Operation, Placement]) -> None:
        """Go on under another plan, with some more values placed."""
        self.plan = replace(plan, placed={**plan.placed, **placed})
        self.placements = propagate(self._program, self.plan, catalog=self._catalog)

    def of(self, node: ast.AST) -> list[Placement]:
        """How the losses of a backward pass lie: of one sample after the other only in the loop that goes over them."""
        found = (each for each in self.backward if each.node is node)
        lying = [(each, self.placements.joint(self._begun_with(each))) for each in found]
        return [
            PerRank("backward", BEHIND) if isinstance(lies, Each) and not self._goes_round_with(each) else lies
            for each, lies in lying
            if lies is not None
        ]

    def _goes_round_with(self, backward: Operation) -> bool:
        """Whether a backward pass is run in each round of the loops that take the samples which its loss is of."""
        of, loops = self.placements.of, backward.region.loops
        ends = self._begun_with(backward)
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
        """The losses that are different on each rank, and no mean over the ranks makes one."""
        lying = ((each, self.placements.of.get(each)) for each in self.ends)
        return {each for each, lies in lying if isinstance(lies, PerRank) or is_extreme(lies)}

    def _above(self, lost: Iterable[Operation]) -> list[Operation]:
        """What made losses different on each rank: of what lies in simple ways itself, of sizes, and of what it has
        made itself in an earlier round: `loss = 0.9 * loss + term`."""

        def is_lost(op: Operation) -> bool:
            lying = self.placements.of.get(op)
            found = isinstance(lying, PerRank) and lying.rows and lying.reason == BY_PLACE  # which takes what all have
            return isinstance(lying, PerRank) and not found and op.name not in SHAPES

        found = closure(lost, lambda op: filter(is_lost, given(op)))
        first = [op for op in found if self._begins_in(op, set(filter(is_lost, given(op))) - {op})]
        return sorted(first, key=lambda op: op.number)

    def _begins_in(self, operation: Operation, before: set[Operation]) -> bool:
        """Whether an operation is the first that is different on each rank, of those ``before`` it."""
        return not before or before <= self._cycles.get(operation, frozenset()) and self._reason_of(operation) != ""

    @cached_property
    def _cycles(self) -> dict[Operation, frozenset[Operation]]:
        return {each: cycle for cycle in self._program.cycles for each in cycle}

    def _reason_of(self, operation: Operation) -> str:
        """Why an operation makes what is different on each rank, if it is not given that."""
        lying = self.placements.of[operation]
        if is_extreme(lying):
            return OF_ONE
        own = isinstance(lying, PerRank) and lying.operation.rpartition(".")[2] == operation.name.rpartition(".")[2]
        own |= isinstance(lying, PerRank) and lying.reason in (REST, MORE)  # of what is in a list
        return lying.reason if own and isinstance(lying, PerRank) else ""

    def _is_unknown(self, operation: Operation) -> bool:
        lying = self.placements.of.get(operation)
        return isinstance(lying, PerRank) and lying.reason == NOT_KNOWN and lying.operation == operation.name

    def _exponent_given(self, operation: Operation) -> int:
        """With which power of the number of ranks what an operation is given scales: gradients of a mean do."""
        lying = (self.placements.of.get(each) for each in given(operation))
        found = {each.exponent for each in lying if isinstance(each, Shard)}
        return found.pop() if len(found) == 1 else 0

    def _is_field(self, operation: Operation) -> bool:
        """Whether it is one of several things that something gives which is not known: `model(x)[0]`, `x, y = …`,
        `views[0]` of what a loader gives."""
        lying = self.placements.of.get(operation)
        by_place = isinstance(lying, PerRank) and lying.reason == BY_PLACE
        of = operation.inputs[0].operations if by_place and operation.inputs else frozenset[Operation]()
        return bool(of) and all(each in self.assumed or self._is_untold_field(each) for each in of)

    def _is_untold_field(self, operation: Operation) -> bool:
        """Whether a loader gives it, and nothing is known of what it is: `views` of `for views, labels in loader`."""
        fields = operation.name == "getitem" and {each.name for each in operation.inputs[0].operations} == {FIELDS}
        return (operation.name == BATCH or fields) and self.placements.sizes.get(operation) is None

    def weighted(self) -> Iterator[tuple[Operation, str]]:
        """The losses that are means over numbers of which ranks have more or fewer, and over what."""
        told = ((each, weight) for each, weight in self._weights() if not weight.startswith(OWN))
        return ((each, self._counted_by(each, weight)) for each, weight in told)

    def taken_by_models(self) -> Iterator[Operation]:
        """The losses that models take themselves, as means over what their labels leave in."""
        return (each for each, weight in self._weights() if weight.startswith(OWN))

    def _weights(self) -> Iterator[tuple[Operation, str]]:
        """Where the means are taken that losses are, if they are weighted, and what they are weighted by."""
        ends = sorted(self.ends, key=lambda op: op.number)
        for each in dict.fromkeys(op for end in ends for op in self._begins(end)):
            lying = self.placements.of[each]
            if isinstance(lying, Partial):
                yield each, lying.weight

    def _begins(self, end: Operation) -> list[Operation]:
        """Where the mean is taken that a loss is, if it is weighted."""
        of = self.placements.of

        def is_weighted_mean(op: Operation) -> bool:
            return is_weighted(of.get(op, SAME))

        found = closure(filter(is_weighted_mean, [end]), lambda op: filter(is_weighted_mean, given(op)))
        return sorted((e for e in found if not any(map(is_weighted_mean, given(e) - {e}))), key=lambda op: op.number)

    def _counted_by(self, mean: Operation, weight: str) -> str:
        """What a rank's own number of counts, in words."""
        known = mean.known
        told = [name for name in LEAVING_OUT if known is not None and is_set(option(mean, known, name))]
        if weight.startswith(COUNTING) and known is not None:
            return f"weighted by {next(iter(told), 'ignore_index')}"
        if weight == NODES:
            return "over the nodes of graphs"
        joins = {int(number): bool(kind) for kind, number in COUNTED.findall(weight)}
        made = next((op for op in self._program.operations if op.number in joins), None)
        if made is None:
            return "over what each rank counts of its own"
        code = code_of(made)
        return f"over what {code} joins" if joins[made.number] else f"over the samples that {code} leaves"

    def counted_at(self) -> Iterator[tuple[Operation, ast.expr]]:
        """Where losses got lost by numbers of what ranks have more or less of, and these numbers: `max(found.numel(),
        1)`"""
        for each, reason in self.lost_at(certain=False):
            for op in given(each) if reason.endswith(NONLINEAR) else ():
                known = op.known
                uneven = self._is_part(op) and not is_number_of_samples(self.placements.of[op])
                if known is not None and known.cls == "length" and uneven and isinstance(op.node, ast.expr):
                    yield each, op.node

    def decided_at(self) -> Iterator[tuple[Operation, ast.expr]]:
        """What losses are computed of in one way or another by sums, means and extremes of a rank's own samples, and
        the tests of that."""
        for each in sorted(self.steps.differentiated, key=lambda op: op.number):
            if any(region.kind in ("read", "collate", "worker") for region in each.region.around()):
                continue  # what loads samples is told of for what it makes
            tests = (test for test in each.source.conditions(each.node) if self._goes_by_parts(self._program.at(test)))
            yield from ((each, test) for test in tests if not isinstance(each.source.parents.get(test), ast.While))

    def _goes_by_parts(self, test: Value) -> bool:
        """Whether a test is computed from a sum, a mean or an extreme of a rank's samples, and not only of how many
        there are."""
        lost = closure(filter(self._is_lost, test.operations), lambda op: filter(self._is_lost, given(op)))
        parts = {*test.operations, *(part for op in lost for part in given(op))}
        return any(map(self._is_part, parts)) and not self._counts(test)

    def empty_at(self) -> Iterator[Operation]:
        """The sums of lists through which alone gradients flow to a loss, and which hold some of a rank's samples: of
        none they are a number."""
        learnt = self.steps.differentiated
        for end in sorted(self.ends, key=lambda op: op.number):
            sums = {op for op in closure([end], given) & learnt if op.name == "builtins.sum" and self._adds_some(op)}
            beside = closure({end} - sums, lambda op: (given(op) & learnt) - sums) if sums else {end}  # noqa: B023
            if sums and all(given(op) & learnt for op in beside):
                yield min(sums, key=lambda op: op.number)

    def numbers_at(self, joined: Collection[ast.AST]) -> Iterator[Operation]:
        """The sums that are taken over all ranks, of lists which hold some of a rank's samples: of none they are a
        number, or what they begin with, and without gradients where other ranks have some."""
        learnt = self.steps.differentiated
        for each in self._program.operations:
            if each.node in joined and each.name == "builtins.sum" and self._adds_some(each) and learnt & given(each):
                begin = each.argument("start", 1)
                if begin is None or learnt.isdisjoint(held(begin)):
                    yield each

    def _adds_some(self, operation: Operation) -> bool:
        """Whether it adds up a list that has been given some of a rank's samples, and not others."""
        tests = (getattr(thing, "picked", EMPTY) for value in operation.inputs[:1] for thing in value.things)
        return any(self.placements.of.get(op, SAME) != SAME for test in tests for op in test.operations)

    def lost_at(
        self, lost: Collection[Operation] | None = None, certain: bool = True
    ) -> Iterator[tuple[Operation, str]]:
        """What losses got lost at, all of them or some, for ``certain`` or for all that is known, and why: samples that
        others pick by number, and sums and means over a rank's samples that something else is computed with than what
        adds up."""
        if lost is None:
            yield from self._left_at()
        lost = self._lost() if lost is None else lost
        for each in self._above(lost):
            lying, reason = self.placements.of[each], self._reason_of(each)
            if not certain or self._is_sure(each, reason):
                yield each, getattr(lying, "reason", reason)
            elif reason == AGAIN:  # `randperm(n)[:4]`
                users = sorted(self._program.users[each], key=lambda op: op.number)
                yield from ((user, SO_MANY) for user in users if self._reason_of(user) == SO_MANY)
            elif each.name.rpartition(".")[2] in ORDERING and reason == OF_ALL:
                if self._goes_on_in_order(each):
                    yield each, reason
                yield from ((cut, FIRST) for cut in self._cuts_of(each))

    def _left_at(self) -> Iterator[tuple[Operation, str]]:
        """The losses of the sample that a loop has come to last, of which each rank has its own."""
        for each in self.backward:
            ends = self._begun_with(each)
            if not self._goes_round_with(each):
                lying = ((op, self.placements.of.get(op)) for op in ends)
                yield from ((op, LAST) for op, lies in lying if isinstance(lies, Each) and lies.loop != PIECES)

    def _goes_on_in_order(self, order: Operation) -> bool:
        """Whether something is computed of the samples in their order that is no sum, mean or extreme of them all:
        `x.sort(0)[0] - y`"""
        if not order.name.endswith(".sort"):
            return False
        first = [op for op in self._program.users[order] if op.name == "getitem" and op.inputs[1].constant == 0]
        users = {user for each in first for user in self._program.users[each]} & self.steps.reaching
        known = (user.known for user in users)
        return any(each is None or each.cls not in ("reduction", "length", "fact") for each in known)

    def _is_sure(self, operation: Operation, reason: str) -> bool:
        """Whether it is for that reason that a loss is another one than that of one process."""
        if reason == OF_ALL:
            return self._is_known_to_mix(operation)
        if reason == BY_PLACE:
            if operation.name == "builtins.slice":
                users = (user for user in self._program.users[operation] if first_slice(user) is operation)
                return any(isinstance(self.placements.value(user.inputs[0]), Shard) for user in users)
            if isinstance(operation.node, ast.Subscript):
                listed = first_slice(operation) is not None and not operation.inputs[0].operations  # `[… for …][1:]`
                told = listed or not self._program.at(operation.node.value).things
                told = told and not any(op.name in SHAPES for value in operation.inputs[:1] for op in value.operations)
            else:
                told = operation.name != "getitem" or first_slice(operation) is not None  # `out, loss = model(x, y)`
                told = told or isinstance(operation.node, ast.Call)  # `list(x).pop()`
            made = [each for value in operation.inputs[:1] for each in value.operations]
            known = (self.placements.sizes.get(e) is not None or e.known is not None for e in made)
            return told and all(known) and self._takes_told_places(operation)
        if reason == AGAIN and operation.name.endswith("randperm"):
            return False  # which samples it takes is drawn
        parts = [each for each in given(operation) if self._is_part(each)]
        reason = NONLINEAR if reason.endswith(NONLINEAR) else reason
        if reason == PRODUCT and any(is_weighted(self.placements.of[each]) for each in parts):
            return False  # a mean is weighed by hand
        if reason == OF_OTHERS:  # `count += 1` of the samples before it
            return any(each in self._program.cyclic and each.region.loops & operation.region.loops for each in parts)
        return reason in CERTAIN or reason in OF_PARTS and bool(parts or operation in self._cycles)

    def _takes_told_places(self, operation: Operation) -> bool:
        """Whether it takes the same samples of a rank whenever it takes some of them: `x[0]`, `x[2:4]`, `x[places]`"""
        if operation.name.endswith(".unbind"):
            users = self._program.users[operation]
            return bool(users) and all(each.name == "getitem" and self._takes_told_places(each) for each in users)
        bounds = self._bounds_of(operation)
        made = (op for each in bounds for op in held(each))
        told = closure(made, lambda op: () if self._tells_size(op) else given(op))
        lying = [self.placements.value(each) for each in bounds]
        alike = all(each in (None, Replicate()) or counted(each) for each in lying) or all(map(self._counts, bounds))
        rounds = frozenset[Region]().union(*(op.region.loops for op in held(operation.inputs[0])))
        steady = all(op.region.loops <= rounds and not op.name.startswith(DRAWING) for op in told)
        counters = told & self._cycles.keys()
        steady = steady or any(self._goes_through(loop) for op in counters for loop in op.region.loops)
        numbers = all(kind in (int, type(None)) for each in bounds for kind, _ in each.constants)
        told_so = (each for each in bounds if each.operations or each.constant is not None)
        written = [e for e in told_so if not (e.operations and self._counts(e) or self._is_of_shape(e))]
        cuts = [each for each in map(as_slice, filter(None, [first_key(operation)])) if each is not None and written]
        counting = closure((op for each in written for op in held(each)), given) | set(cuts)
        counting = {op for op in counting if not op.name.endswith("arange") or len(op.inputs) < 3}
        of_batch = any(self.plan.counts(op, [each]) is not None for op in counting for each in op.inputs)
        return any(map(bool, bounds)) and alike and steady and numbers and not of_batch  # `out[torch.arange(size), y]`

    def _tells_size(self, operation: Operation) -> bool:
        return operation.name in SHAPES or bool(counted(self.placements.of.get(operation)))

    @staticmethod
    def _bounds_of(operation: Operation) -> Sequence[Value]:
        """What tells the places along the first axis that an operation takes."""
        if operation.name.endswith((".narrow", ".select")):
            return operation.inputs[2:]
        selects = operation.name.endswith(".index_select")
        first = operation.argument("index", 2) if selects else first_key(operation)
        cut = as_slice(first) if first is not None else None
        return cut.inputs if cut is not None else [first] if first is not None else []

    def _counts(self, bound: Value) -> bool:
        """Whether it is computed of how many samples there are, and of nothing else of theirs: `min(4, len(x))`"""
        above = closure(bound.operations, lambda op: () if counted(self.placements.of.get(op)) else given(op))
        numbers = ("operator.", "builtins.min", "builtins.max", "builtins.int", "math.")
        return all(counted(self.placements.of.get(op)) or op.name.startswith(numbers) for op in above)

    def _is_of_shape(self, bound: Value) -> bool:
        """`out.shape[1]`"""
        return bool(bound.operations) and all(
            op.name == "getitem" and any(each.name in SHAPES for each in given(op)) for op in bound.operations
        )

    def _goes_through(self, loop: Region) -> bool:
        """Whether a loop goes on until it has gone through a rank's samples: `while i < len(x)`"""
        test = self._program.at(loop.node.test).operations if isinstance(loop.node, ast.While) else ()
        return any(counted(self.placements.value(each)) for op in test for each in op.inputs)

    def _is_known_to_mix(self, operation: Operation) -> bool:
        """Whether it is told that it computes each sample from all: others work along another axis, for all that is
        known of that, or put samples in other places."""
        known = operation.known
        moves = known is not None and known.short in MOVING
        if known is None or not moves and known.cls not in ("scan", "per_sample", "decomposition"):
            return False
        first, told = self.placements.value(operation.inputs[0]) if operation.inputs else None, call(operation, known)
        if known.cls == "per_sample" and told.mixed is None and (known.short == "pad" or not getattr(first, "axis", 0)):
            taken = {*self.plan.placed, *self.plan.taken.get(operation, ())}
            return operation.inputs[0].operations <= taken  # of a sample alone, such layers are given no batch
        return not told.untold and all(self.placements.size(each) is not None for each in operation.inputs[:1])

    def is_lost_at(self, nodes: Collection[ast.AST], backward: ast.AST) -> bool:
        """Whether the loss of a backward pass got lost for certain where one of some nodes is."""
        return any(each.node in nodes for each, _ in self.lost_at(self._lost_of(backward)))

    def doubted_at(self, backward: ast.AST) -> tuple[Operation, str] | None:
        """Where the loss of a backward pass got lost for all that is known, if it is not told for certain."""
        lost = self._lost_of(backward)
        if any(self.lost_at(lost)):
            return None
        ends = [op for op in self._ends_of(backward) if not self._is_unknown_module(op)]
        rows = [op for op in ends if isinstance(self.placements.of.get(op), Shard)]
        taken = sorted(closure(rows, given) & self.assumed or {*rows}, key=lambda op: op.number)
        each = next(((op, NOT_KNOWN if op in self.assumed else OF_EACH) for op in taken), None)
        return next(self.lost_at(lost, certain=False), each)

    @staticmethod
    def _is_unknown_module(operation: Operation) -> bool:
        """Whether a module of a library of which nothing is known gives a loss itself: `loss = model(x)`"""
        return operation.name == "call"

    def made_of(self, backward: ast.AST) -> frozenset[ast.AST]:
        """Where what the loss of a backward pass is computed from is written."""
        return frozenset(each.node for each in closure(self._ends_of(backward), given))

    def _lost_of(self, backward: ast.AST) -> set[Operation]:
        return self._lost().intersection(self._ends_of(backward))

    def _ends_of(self, backward: ast.AST) -> set[Operation]:
        """What a backward pass is begun with."""
        return {op for each in self.backward if each.node is backward for op in self._begun_with(each)}

    def _begun_with(self, backward: Operation) -> list[Operation]:
        """What may give the loss of a backward pass, which is a number where no gradient is given to it."""
        made = list(held(joined(backward.inputs[:1])))
        return made if has_gradient(backward) else self.placements.numbers(made)

    def met_at(self) -> Operation | None:
        """Where each sample of a batch meets the others for certain, so that a loss of some of them is another one."""
        meeting = (each for each, reason in self.lost_at() if reason in MEETING)
        apart = MOVING | ORDERING
        told = (each for each in meeting if each.name.rpartition(".")[2] not in apart)
        return next((each for each in told if each in self.steps.differentiated), None)

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
        return isinstance(self.placements.of.get(operation), Partial)

    # sums that are multiplied

    def sums(self) -> Iterator[ast.AST]:
        """The backward passes of losses that are sums over samples."""
        for node in dict.fromkeys(each.node for each in self.backward):
            lying = self.of(node)
            summed = [*map(self.adds_up, lying)]
            if any(summed) and all(one or each == SAME for one, each in zip(summed, lying, strict=True)):
                yield node

    def sums_or_means(self) -> Iterator[ast.AST]:
        """The backward passes of losses that are sums over samples in one case and means in another, as by an option:
        no one factor makes both those of the whole batch."""
        lying: dict[ast.AST, set[bool]] = {}
        for each in self.backward:
            passes = (op for op in self._begun_with(each) if op.owner is None or op.name == op.owner.name)
            found = map(self.placements.of.get, passes)
            kinds = {self.adds_up(one) for one in found if isinstance(one, Partial) and one.reduce in ("sum", "mean")}
            lying.setdefault(each.node, set()).update(kinds)
        yield from (node for node, kinds in lying.items() if len(kinds) > 1)

    @staticmethod
    def adds_up(lying: Placement) -> bool:
        """Whether it is a sum over a rank's samples, or one of several that make one."""
        return lying == SUM or isinstance(lying, Each) and not lying.over

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
        return lying is not None and self.adds_up(lying)

    def _terms_of(self, operation: Operation) -> Iterator[Term]:
        """The sums that an operation adds to what is none."""
        known = operation.known
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
