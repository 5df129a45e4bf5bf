"""Where to communicate: the expressions that are made global so that what is demanded is replicated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from autodist import operations
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.call import ROWS
from autodist.placement.lattice import SUMMED
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Region, Value, held
from autodist.solve.alone import Alone
from autodist.solve.costs import cheapest
from autodist.solve.demands import Demand, demands
from autodist.source import Source, children


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
            found.setdefault(cut.node, cut)
    return [solver.narrowed(each) for each in cheapest(list(found.values()), program, placements)]


class _Cutting:
    def __init__(self, program: Program, placements: Placements, alone: Alone) -> None:
        self._program, self._placements, self._alone = program, placements, alone

    def met(self, demand: Demand) -> Iterator[Cut]:
        """What to make global for a demand."""
        yield from self._at(demand.node, demand.operation, demand, set())

    def _at(self, node: ast.expr, user: Operation, demand: Demand, seen: set[ast.AST]) -> Iterator[Cut]:
        """What to make global so that an expression is, which an operation uses."""
        if node in seen:
            return
        seen.add(node)
        if isinstance(node, (ast.Starred, ast.FormattedValue)):
            yield from self._at(node.value, user, demand, seen)
            return
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.JoinedStr)):
            for each in _parts(node):
                yield from self._at(each, user, demand, seen)
            if isinstance(node, ast.JoinedStr):
                return
        value = self._program.at(node)
        yield from self._kept(value, _parts(node), demand, seen)
        placement = self._joint(value)
        if placement is None or placement == Replicate():
            return
        if isinstance(placement, PerRank) or _is_weighted(placement) or self._alone.binds(node, user.source):
            inner = [*self._behind(node, value, user, demand, seen)]
            if _is_weighted(placement) and not all(_is_sum(each.placement) for each in inner):
                inner = []
            yield from inner or [Cut(user.source, node, placement, demand, user.region)]
        elif not isinstance(placement, Each):
            yield Cut(user.source, node, placement, demand, user.region)

    def _joint(self, value: Value) -> Placement | None:
        """How a value lies; where it is that of all ranks in some contexts, as it does in the others."""
        found = self._placements.value(value)
        if isinstance(found, PerRank) and found.operation == "join":
            apart = [each for each in value.operations if self._placements.of.get(each, Replicate()) != Replicate()]
            return self._placements.joint(apart)
        return found

    def _kept(self, value: Value, written: Iterable[ast.expr], demand: Demand, seen: set[ast.AST]) -> Iterator[Cut]:
        """What lists, dicts and objects have been given, beside what they were ``written`` with here."""
        if demand.kind == "test" or not value.things:
            return
        here = {*value.operations, *(op for each in written for op in held(self._program.at(each)))}
        inside = [each for each in held(value) if each not in here]
        for each in sorted(inside, key=lambda op: op.number):
            yield from self._made(each, demand, seen)

    def _made(self, operation: Operation, demand: Demand, seen: set[ast.AST]) -> Iterator[Cut]:
        """What to make global where an operation gives it."""
        if isinstance(operation.node, ast.expr):
            yield from self._at(operation.node, operation, demand, seen)
            return
        for each in children(operation.node):
            if isinstance(each, ast.expr):
                yield from self._at(each, operation, demand, seen)

    def _behind(
        self, node: ast.expr, value: Value, user: Operation, demand: Demand, seen: set[ast.AST]
    ) -> Iterator[Cut]:
        """What to make global of what an expression is computed from."""
        for each in sorted(value.operations, key=lambda op: op.number):
            if each.node is not node:
                yield from self._made(each, demand, seen)
                continue
            parts = {part: self._program.at(part) for part in _operands(node)}
            for given in each.operands:
                shown = [
                    part
                    for part, held_ in parts.items()
                    if given.operations | given.things <= held_.operations | held_.things
                ]
                for part in shown[:1]:
                    yield from self._at(part, each, demand, seen)
                if not shown:
                    yield from self._given(given, demand, seen)

    def _given(self, value: Value, demand: Demand, seen: set[ast.AST]) -> Iterator[Cut]:
        """What to make global of a value that no expression stands for: what `str(meter)` puts together."""
        yield from self._kept(value, (), demand, seen)
        for each in sorted(value.operations, key=lambda op: op.number):
            yield from self._made(each, demand, seen)

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
                if _is_sum(self._joint(self._program.at(a))) and self._joint(self._program.at(b)) in (None, Replicate())
            ]
            if not found:
                break
            node = found[0]
        return replace(cut, node=node)


def _is_sum(placement: Placement | None) -> bool:
    return isinstance(placement, Partial) and placement.reduce == "sum"


def _is_weighted(placement: Placement) -> bool:
    """Whether it is a mean over numbers of which ranks have more or fewer: their sums and counts are reduced."""
    return (
        isinstance(placement, Partial) and placement.reduce == "mean" and placement.weight.removeprefix(SUMMED) != ROWS
    )


def _parts(node: ast.expr) -> Iterable[ast.expr]:
    match node:
        case ast.Dict(values=parts) | ast.JoinedStr(values=parts):
            return parts
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return parts
    return ()


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that one is computed from."""
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
