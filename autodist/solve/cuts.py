"""Where to communicate: the expressions that are made global so that what is demanded is replicated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autodist import operations
from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import gives_zeros
from autodist.placement.call import ROWS
from autodist.placement.lattice import SUMMED
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, Region, Value, held, joined
from autodist.solve.alone import Alone
from autodist.solve.costs import cheapest
from autodist.solve.demands import Demand, demands
from autodist.solve.sources import Sources
from autodist.solve.steps import Steps
from autodist.source import Source, children
from autodist.trace.attributes import ordered
from autodist.trace.things import Mapping, Object, Sequence

LEARNT = "gradients flow through it, and none would flow through the reduced value"
EITHER = "the same code runs on what all ranks have, which would be counted as often as there are ranks"
ALONE = "rank 0 alone has it, and no other rank communicates there"
LIBRARY = frozenset("module optimizer scheduler loader dataset sampler scaler".split())
"""Roles of objects whose contents are seen to elsewhere, or are no numbers."""
OTHERWISE = "the same expression lies one way in one context and another way in another"
ONE_BY_ONE = "it is computed of one sample after the other"


@dataclass(frozen=True)
class Cut:
    """An expression to make global, by how it lies; one that cannot be, if it is different on each rank."""

    source: Source
    node: ast.expr
    placement: Placement
    demand: Demand
    region: Region

    @property
    def is_met(self) -> bool:
        """Whether a communication makes it global."""
        return isinstance(self.placement, (Partial, Shard, Replicate))


def cuts(program: Program, placements: Placements, alone: Alone | None = None) -> list[Cut]:
    """The expressions to make global, each once, in the order in which they are demanded."""
    alone = alone or Alone()
    solver = _Cutting(program, placements, alone)
    found: dict[ast.expr, Cut] = {}
    for demand in demands(program, operations.load(), alone):
        for cut in solver.met(demand):
            before = found.setdefault(cut.node, cut)
            if before.is_met and before.placement != cut.placement and not _is_alike(before.placement, cut.placement):
                found[cut.node] = replace(cut, placement=PerRank("join", OTHERWISE))
    return [solver.narrowed(each) for each in cheapest(list(found.values()), program, placements)]


def as_reported(program: Program, given: Sources, catalog: Catalog) -> Placements:
    """How values lie where they are shown: losses that relate the samples of a batch are seen to apart, and then are
    means like others."""
    placements = propagate(program, given.plan, catalog=catalog)
    losses = (each for effect in program.of("backward") for each in held(joined(effect.operation.inputs[:1])))
    mixed = {each: Partial("mean", ROWS) for each in losses if isinstance(placements.of.get(each), PerRank)}
    if not mixed:
        return placements
    return propagate(program, replace(given.plan, placed={**given.plan.placed, **mixed}), catalog=catalog)


class _Cutting:
    def __init__(self, program: Program, placements: Placements, alone: Alone) -> None:
        self._program, self._placements, self._alone = program, placements, alone
        self._learnt = Steps(program).reaching
        self._table = operations.load()

    def met(self, demand: Demand) -> Iterator[Cut]:
        """What to make global for a demand."""
        search = _Search(self, demand)
        operation = demand.operation
        if demand.kind == "test" and isinstance(operation.node, ast.expr):
            yield from search.at(operation.node, Value(frozenset([operation])), operation)
        else:
            yield from search.given_to(operation, demand.kind != "write")

    def placement(self, value: Value) -> Placement | None:
        """How a value lies; where it is that of all ranks in some contexts, as it does in the others."""
        found = self._placements.value(value)
        if isinstance(found, PerRank) and found.operation == "join":
            return self._placements.joint(each for each in value.operations if not self.is_alike(each))
        return found

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
        if user in self._learnt:
            return PerRank(user.name, LEARNT)
        if isinstance(placement, Each):
            return PerRank(user.name, ONE_BY_ONE)
        if isinstance(placement, Partial) and placement.reduce != "sum":
            return None
        whole = [each for each in self.at(node).operations if self.is_alike(each) and not gives_zeros(each)]
        return PerRank(user.name, EITHER) if whole else None

    def is_about_sizes(self, placement: PerRank) -> bool:
        """Whether a tensor got lost where its sizes are written down, which a plan may divide, or are asked for."""
        known = self._table.find(placement.operation)
        return known is not None and known.cls in ("view", "length")

    def is_bound_alone(self, node: ast.expr, user: Operation) -> bool:
        """Whether rank 0 alone has what an expression is computed from."""
        return self._alone.binds(node, user.source)

    def narrowed(self, cut: Cut) -> Cut:
        """In ``100 * correct / n`` only ``correct`` has to be reduced: the number itself is exact."""
        node, placement = cut.node, cut.placement
        while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
            if not isinstance(placement, Partial) or placement.reduce != "sum" or placement.weight:
                break
            sides = [(node.left, node.right), (node.right, node.left)]
            found = [
                a
                for a, b in sides
                if _is_sum(self.placement(self.at(a))) and self.placement(self.at(b)) in (None, Replicate())
            ]
            if not found:
                break
            node = found[0]
        return replace(cut, node=node)


class _Search:
    """For one demand, from what it is given back to what can be made global."""

    def __init__(self, solver: _Cutting, demand: Demand) -> None:
        self._solver, self._demand = solver, demand
        self._found: dict[tuple[ast.AST, Value], list[Cut]] = {}

    def given_to(self, operation: Operation, but_owner: bool = False) -> Iterator[Cut]:
        """What to make global of what an operation is given, ``but_owner`` not the object whose method it is."""
        node = operation.node
        parts = list(parts_of(node))
        owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        for given in operation.operands:
            part = next((each for each in parts if _covers(self._solver.at(each), given)), None)
            if part is owner is not None and but_owner:
                parts.remove(owner)
            elif part is None:
                yield from self._of(given)
            else:
                parts.remove(part)
                yield from self.at(part, given, operation)

    def at(self, node: ast.expr, value: Value, user: Operation) -> list[Cut]:
        """What to make global so that an expression is, which an operation uses."""
        if (node, value) not in self._found:
            self._found[node, value] = []  # while it is looked for
            self._found[node, value] = list(self._at(node, value, user))
        return self._found[node, value]

    def _at(self, node: ast.expr, value: Value, user: Operation) -> Iterator[Cut]:
        if isinstance(node, (ast.Starred, ast.FormattedValue)):
            yield from self.at(node.value, value, user)
            return
        for each in ordered(value.things) if self._demand.kind != "test" else ():
            if not isinstance(each, Object) or each.cls is not None and not each.roles & LIBRARY:
                yield from self._inside(each, node, user)
        placement = self._solver.placement(value)
        if placement is None or placement == Replicate():
            return
        lost = placement if isinstance(placement, PerRank) else self._solver.stuck(node, placement, user)
        alone = self._solver.is_bound_alone(node, user)
        mixed = isinstance(placement, PerRank) and not self._solver.is_about_sizes(placement)
        inner = [*self._behind(node, value)] if mixed or alone or is_weighted(placement) else []
        if lost is None and alone and not inner:
            lost = PerRank(user.name, ALONE)
        if lost is None and not alone and not all(_is_sum(each.placement) for each in inner):
            inner = []
        yield from inner or [Cut(user.source, node, lost or placement, self._demand, user.region)]

    def _inside(self, thing: object, node: ast.expr, user: Operation) -> Iterator[Cut]:
        """What to make global of what a list, a dict or an object holds, where it is written down, or was put in."""
        written = _written(thing, node)
        for part, value in written:
            yield from self.at(part, value, user)
        if not written:
            yield from self._of(Value(things=frozenset([thing])))

    def _of(self, value: Value) -> Iterator[Cut]:
        """What to make global of a value that no expression stands for: what `str(meter)` puts together."""
        if value.things and self._demand.kind == "test":
            value = Value(value.operations)
        for each in sorted({*held(value)}, key=lambda op: op.number):
            yield from self._made(each)

    def _made(self, operation: Operation) -> Iterator[Cut]:
        """What to make global where an operation gives it: of what is added up from round to round, what is added."""
        if self._solver.goes_round(operation):
            for part in parts_of(operation.node):
                before = self._solver.at(part)
                if not any(map(self._solver.goes_round, before.operations)):
                    yield from self.at(part, before, operation)
        elif isinstance(operation.node, ast.expr):
            yield from self.at(operation.node, Value(frozenset([operation])), operation)
        else:
            yield from self.given_to(operation)

    def _behind(self, node: ast.expr, value: Value) -> Iterator[Cut]:
        """What to make global of what an expression is computed from."""
        for each in sorted(value.operations, key=lambda op: op.number):
            yield from self.given_to(each) if each.node is node else self._made(each)


def _covers(one: Value, other: Value) -> bool:
    """Whether an expression in all contexts may be what a value is in one."""
    return bool(other.operations or other.things or other.constants) and (
        other.operations <= one.operations and other.things <= one.things and other.constants <= one.constants
    )


def _written(thing: object, node: ast.expr) -> list[tuple[ast.expr, Value]]:
    """The expressions that a list, a tuple or a dict is written down with, and what they are in one context."""
    if getattr(thing, "node", None) is not node:
        return []
    match node, thing:
        case ast.Tuple(elts=parts) | ast.List(elts=parts), Sequence(parts=values) if values is not None:
            if len(parts) == len(values):
                return list(zip(parts, values, strict=True))
        case ast.Dict(keys=keys, values=parts), Mapping(entries=entries):
            names = [each.value if isinstance(each, ast.Constant) else None for each in keys]
            if len(entries) == len(names) and all(name in entries for name in names):
                return [(part, entries[name].value) for name, part in zip(names, parts, strict=True)]
    return []


def _is_alike(one: Placement, other: Placement) -> bool:
    """Whether the same communication makes values global that lie one way or another."""
    means = [isinstance(each, Partial) and each.reduce == "mean" and not is_weighted(each) for each in (one, other)]
    sums = [_is_sum(each) for each in (one, other)]
    return all(means) or all(sums)


def _is_sum(placement: Placement | None) -> bool:
    return isinstance(placement, Partial) and placement.reduce == "sum"


def is_weighted(placement: Placement) -> bool:
    """Whether it is a mean over numbers of which ranks have more or fewer: their sums and counts are reduced."""
    return (
        isinstance(placement, Partial) and placement.reduce == "mean" and placement.weight.removeprefix(SUMMED) != ROWS
    )


def parts_of(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that one is computed from, or a statement."""
    match node:
        case ast.Call():
            if isinstance(node.func, ast.Attribute):
                yield node.func.value
            yield from node.args
            yield from (each.value for each in node.keywords)
        case ast.Lambda():
            return
        case _:
            yield from (each for each in children(node) if isinstance(each, ast.expr))
