"""What steps keep of single samples for later ones to train on: a memory has those of all ranks where the function that
fills it is given them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.placement import Each, PerRank, Shard
from autodist.program import Region, held
from autodist.solve.demands import Demand
from autodist.solve.facts import Facts
from autodist.solve.search import Cut
from autodist.solve.written import parts_of, stores

KEPT = "it is kept for later steps, one sample after the other"


def remembered(facts: Facts) -> Iterator[Cut]:
    """The rows to make global so that lists hold the samples of all ranks that later steps train on."""
    for thing in facts.memories():
        for given, user in stores(thing):
            apart = [each for each in given if any(isinstance(facts.lies(op), Each) for op in held(facts.at(each)))]
            demand = Demand("memory", user)
            lost = [Cut(user.source, each, PerRank("store", KEPT), demand, user.region) for each in apart]
            yield from (_rows_given(demand, user.region, facts) or lost) if apart else ()


def given_to_keep(cut: Cut, facts: Facts) -> list[Cut]:
    """The rows that a function is given which puts what cannot be made global there into a tensor; none, if it puts it
    nowhere."""
    statement = cut.source.statement(cut.node)
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    if not any(isinstance(each, ast.Subscript) for each in targets):
        return []
    return _rows_given(cut.demand, cut.region, facts)


def _rows_given(demand: Demand, inside: Region, facts: Facts) -> list[Cut]:
    """The rows that the innermost call around a region is given which is given any."""
    for region in inside.around():
        if region in facts.learning or region.kind == "call" and facts.is_trained_on(region.node):
            return []  # a pass of a model that is trained, or what hands on samples to one
        outer = region.parent
        if region.kind == "call" and isinstance(region.node, ast.Call) and outer is not None:
            rows = [each for each in parts_of(region.node) if _has_rows(each, facts)]
            if rows:
                return [Cut(outer.source, each, Shard(0), demand, outer, is_kept=True) for each in rows]
    return []


def _has_rows(node: ast.expr, facts: Facts) -> bool:
    value = facts.at(node)
    return facts.placement(value) == Shard(0) and facts.learnt.isdisjoint(value.operations)
