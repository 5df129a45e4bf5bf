"""What is asked of the program and its placements where something is to be made global."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autodist import operations
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import begins_with_zero, gives_zeros
from autodist.placement.call import ROWS
from autodist.placement.lattice import SUMMED
from autodist.placement.placements import Placements
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held
from autodist.solve.alone import Alone
from autodist.solve.demands import SHOWN
from autodist.solve.steps import Steps, given
from autodist.solve.written import contents, is_flat
from autodist.source import Source

LEARNT = "gradients flow through it, and none would flow through the reduced value"
EITHER = "the same code runs on what all ranks have, which would be counted as often as there are ranks"
ALONE = "rank 0 alone has it, and no other rank communicates there"
IN_LOADER = "a loader's workers compute it, which cannot communicate"
ONE_BY_ONE = "it is computed of one sample after the other"


class Facts:
    """What placements and the program say of an expression that may be made global."""

    def __init__(
        self, program: Program, placements: Placements, alone: Alone, settled: frozenset[ast.AST] = frozenset()
    ) -> None:
        self.settled = settled
        self._program, self._placements, self._alone = program, placements, alone
        self._steps = Steps(program)
        self.learnt = self._steps.differentiated
        self._table = operations.load()

    def placement(self, value: Value) -> Placement | None:
        """How a value lies; where it is that of all ranks in some contexts, as it does in the others."""
        found = self._placements.value(value)
        if found == Partial("sum", exponent=1):
            return Partial("mean", ROWS)  # ranks have as many samples
        if isinstance(found, PerRank) and found.operation == "join":
            return self._placements.joint(each for each in value.operations if not self.is_alike(each))
        return found

    def joint(self, made: Iterable[Operation]) -> Placement | None:
        """How one of several results lies."""
        return self._placements.joint(made)

    def kept(self) -> Iterator[Operation]:
        """What steps keep for later ones, which compute their losses from it: as a sum or mean over a rank's samples,
        or otherwise different on each rank."""
        for each in sorted(self.states, key=lambda op: op.number):
            if isinstance(self.lies(each), (Partial, PerRank)):
                yield each

    @cached_property
    def states(self) -> set[Operation]:
        """What is computed of what an earlier step has kept, and kept itself: no gradient flows through it."""
        kept = (self._steps.reaching - self.learnt) & self._program.cyclic
        found = {each for each in kept if any(other.number >= each.number for other in given(each) & kept)}
        return closure(found, lambda each: kept.intersection(self._program.users[each]))

    def lies(self, operation: Operation) -> Placement | None:
        """How what an operation gives lies."""
        return self._placements.of.get(operation)

    def adds_up(self, thing: object) -> bool:
        """Whether what a list or a dict holds of a rank's own is added up from round to round."""
        apart = [each for part in contents(thing) for each in part.operations if not self.is_alike(each)]
        return is_flat(thing) and bool(apart) and all(map(self.goes_round, apart))

    def is_alike(self, operation: Operation) -> bool:
        """Whether all ranks have what an operation gives."""
        return self._placements.of.get(operation, Replicate()) == Replicate()

    def at(self, node: ast.AST) -> Value:
        """What an expression may evaluate to, in any context."""
        return self._program.at(node)

    def goes_round(self, operation: Operation) -> bool:
        """Whether it is given what it gave in an earlier round of a loop."""
        return operation in self._program.cyclic

    def stuck(self, node: ast.expr, placement: Placement, user: Operation) -> PerRank | None:
        """Why an expression cannot be made global where it stands, if it cannot."""
        if user in self.learnt:
            return PerRank(user.name, LEARNT)
        if isinstance(placement, Each) or self._placements.sample_loops & around(user).loops:
            return PerRank(user.name, ONE_BY_ONE)
        if (barred := self.barred(node, user.source)) is not None:
            return PerRank(user.name, barred)
        if isinstance(placement, Partial) and placement.reduce != "sum":
            return None
        whole = [each for each in self.at(node).operations if self.is_alike(each) and not gives_zeros(each)]
        return PerRank(user.name, EITHER) if whole or not begins_with_zero(self.at(node)) else None

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

    @cached_property
    def _run_alone(self) -> set[ast.AST]:
        """The functions that rank 0 calls alone."""
        return {each for operation in self._program.operations for each in self._alone.functions(operation)}

    @cached_property
    def _run_by_loaders(self) -> set[ast.AST]:
        """The functions that loaders call: data sets' and `collate_fn`."""
        return {each.function for each in self._program.calls if each.function and self._is_loader(each.node)}

    def _is_loader(self, node: ast.AST) -> bool:
        return any("loader" in getattr(each, "roles", ()) for each in self.at(node).things)

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
            fresh = {op for op in fresh if isinstance(self._placements.of.get(op), Each)}
            found |= fresh
            pending += fresh
        return sorted(roots, key=lambda op: op.number)

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
        changing = (each for each in self._program.operations if each.name == "setitem" or each.name.endswith("_"))
        return any(
            each.inputs and each.inputs[0].operations & given and call in each.region.around() for each in changing
        )

    def is_about_sizes(self, placement: PerRank, kind: str) -> bool:
        """Whether a tensor got lost where its sizes are written down, which a plan may divide, or are asked for and not
        shown."""
        known = self._table.find(placement.operation)
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


def is_number_of_samples(placement: Placement | None) -> bool:
    """Whether it counts samples, of which all ranks have as many."""
    return isinstance(placement, Partial) and placement.weight.removeprefix(SUMMED) == ROWS


def is_weighted(placement: Placement) -> bool:
    """Whether it is a mean over numbers of which ranks have more or fewer: their sums and counts are reduced."""
    return (
        isinstance(placement, Partial) and placement.reduce == "mean" and placement.weight.removeprefix(SUMMED) != ROWS
    )
