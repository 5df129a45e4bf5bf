"""What a communication costs, and so where it is put: where a value is made, or where each reader takes it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from autodist.placement import Each, Partial, PerRank, Replicate, Shard
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Region, held
from autodist.solve.facts import is_number_of_samples
from autodist.solve.steps import steps_of
from autodist.solve.written import assigned, parts_of
from autodist.source import Source, all_of, spelled

if TYPE_CHECKING:
    from autodist.solve.search import Cut

SAME = Replicate()
ROUNDS = 100.0
"""How often a loop is taken to run, which nobody knows."""


def often(region: Region) -> float:
    """How often a region is taken to run."""
    times = 1.0
    for each in region.around():
        times *= {"loop": ROUNDS, "branch": 0.5}.get(each.kind, 1.0)
    return times


Barred: TypeAlias = Callable[[ast.AST, Source], str | None]


def cheapest(cuts: Sequence[Cut], program: Program, placements: Placements, barred: Barred) -> Iterator[Cut]:
    """The same communications where each of them costs least: once where a value is made that several print, or where
    the one print takes it that comes every hundred steps."""
    readers: dict[ast.AST, list[tuple[Cut, Cut]]] = defaultdict(list)
    uses = _Uses(program, placements, barred)
    makers = {uses.maker(cut.node) or cut.node for cut in cuts}
    for cut in cuts:
        inner = uses.within(cut, makers)
        readers[uses.maker(inner.node) or inner.node].append((inner, cut))
    for made, pairs in readers.items():
        place = uses.place(made, [inner for inner, _ in pairs])
        read = {_text(inner) for inner, cut in pairs if inner is cut}
        beside = [inner if _text(inner) in read else cut for inner, cut in pairs]
        yield from [place] if place is not None else beside


def _text(cut: Cut) -> tuple[ast.AST, str]:
    """What a function reads: rules have that reduced once."""
    return cut.source.home(cut.node), cut.source.code(cut.node)


class _Uses:
    """Who reads what, and whether that may be global."""

    def __init__(self, program: Program, placements: Placements, barred: Barred) -> None:
        self._program, self._placements, self._barred = program, placements, barred
        self._learnt = steps_of(program).differentiated

    def maker(self, node: ast.expr) -> ast.AST | None:
        """The expression that makes what another one reads, of a rank's own, if it is one."""
        found = {each.node for each in self._apart(node)}
        return found.pop() if len(found) == 1 else None

    def within(self, cut: Cut, makers: set[ast.AST]) -> Cut:
        """A cut at what its expression is computed from, where others want that global, too: `counts` of
        `counts.sum(1)`"""
        node, own = cut.node, self.maker(cut.node)
        while cut.is_met and len(parts := [each for each in parts_of(node) if self._apart(each)]) == 1:
            (node,) = parts
            if self._placements.value(self._program.at(node)) != cut.placement:
                break
            made = self.maker(node)
            if made is not None and made is not own and made in makers:
                return replace(cut, node=node, read=cut.read | {cut.node})
        return cut

    def _is_apart(self, operation: Operation) -> bool:
        return self._placements.of.get(operation, SAME) != SAME

    def _apart(self, node: ast.AST) -> list[Operation]:
        found = self._program.at(node).operations
        return [each for each in found if self._is_apart(each)]

    def _is_also_other(self, node: ast.AST) -> bool:
        """Whether it may be what all ranks have, too: `variables.get(column)`"""
        value = self._program.at(node)
        return bool(value.constants) or any(not self._is_apart(each) for each in value.operations)

    def place(self, made: ast.AST, group: list[Cut]) -> Cut | None:
        """Where a value is made global once for all that read it, if that costs less than where they do."""
        read = [each for each in group if each.node is not made]
        makers = [each for each in self._apart(made) if each.node is made]
        if not read or not makers or not isinstance(made, ast.expr):
            return None
        trained = all(each.demand.kind == "loss" and not is_number_of_samples(each.placement) for each in group)
        trained = trained and self._learnt.isdisjoint(makers)  # whose gradients are those of a rank's own
        if trained and not any(isinstance(self._placements.of.get(user), Each) for user in self._users(makers)):
            return replace(group[0], node=made, region=makers[0].region, source=makers[0].source)
        if not all(self._may_be_global(each, {cut.node for cut in group}) for each in makers):
            return None
        if len(makers) < sum(1 for each in self._program.at(made).operations if each.node is made):
            return None  # other calls of the function make it of what all ranks have
        region, source = makers[0].region, makers[0].source
        if self._barred(made, source) is not None:
            return None
        costs = sum(often(each.region) for each in group)
        others = any(isinstance(e.node, ast.Subscript) or self._is_also_other(e.node) for e in read)
        if costs < often(region) or costs == often(region) and not others:
            return None  # `history[-1]` may be read elsewhere, too
        bound = self._bound(read) if len(read) == len(group) else None
        here = replace(group[0], node=made, region=region, source=source, read=frozenset(each.node for each in group))
        return here if bound is None else replace(here, node=bound, source=read[0].source)

    def _users(self, made: Sequence[Operation]) -> Iterator[Operation]:
        return (user for each in made for user in self._program.users[each])

    def _bound(self, read: list[Cut]) -> ast.expr | None:
        """What the one name was bound to by which all read it: `train(epoch)` of `loss = train(epoch)`."""
        names = {ast.unparse(each.node) for each in read if isinstance(each.node, ast.Name)}
        homes = {each.source.home(each.node) for each in read}
        if len(names) != 1 or len(homes) != 1 or not all(isinstance(each.node, ast.Name) for each in read):
            return None
        (home,), (name,) = homes, names
        bindings = [each for each in all_of(home, ast.Assign) if name in map(spelled, each.targets)]
        return bindings[0].value if len(bindings) == 1 else None

    def _may_be_global(self, made: Operation, read: set[ast.expr]) -> bool:
        """Whether a value may be global for all that are given it: no gradient flows through it, and nobody adds a sum
        or a number of all samples to those of one rank, or has samples meet others."""
        if made in self._learnt:
            return False
        if isinstance(self._placements.of.get(made), Shard):
            lost = [each for each in self._program.users[made] if isinstance(self._placements.of.get(each), PerRank)]
            if any(read.isdisjoint(assigned(each)) for each in lost):
                return False
        found, pending = {made}, [made]
        while pending:
            for user in self._program.users[pending.pop()]:
                lying = self._placements.of.get(user)
                if user in self._learnt or isinstance(lying, Each):
                    return False  # losses are divided by it, or loops count a rank's own samples by it
                if user in found or isinstance(lying, PerRank):
                    continue
                found.add(user)
                pending.append(user)
        given = {each for user in found - {made} for each in _given(user)}
        means = all(self._is_mean(each) for each in found)
        return means or all(each in found or self._placements.of.get(each, SAME) == SAME for each in given)

    def _is_mean(self, operation: Operation) -> bool:
        """Whether it is as good a number of one rank's where a part of it is global already."""
        placement = self._placements.of.get(operation, SAME)
        return placement == SAME or isinstance(placement, Partial) and placement.reduce != "sum"


def _given(operation: Operation) -> list[Operation]:
    return [each for value in operation.operands for each in held(value)]
