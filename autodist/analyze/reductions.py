"""Numbers that a script reads off the device: what makes each that of all ranks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from autodist import escapes, naming, regions
from autodist.interpreter import Interpreter, Plan, once_a_run
from autodist.rule import Severity
from autodist.script import Concern, Reduction, Site
from autodist.spread import ROWS, Spread
from autodist.tensors import operations
from autodist.values import NOTHING, Items

ROUNDS = 6


def summed_up_before(again: Callable[[Plan], Interpreter], plan: Plan, run: Interpreter) -> list[escapes.Placed]:
    """The sums to be taken over all ranks before training, because losses are computed from them."""
    found: dict[ast.expr, escapes.Placed] = {}
    for _ in range(ROUNDS):
        fresh = {place.node: place for place in escapes.summed_up_before(run) if place.node not in found}
        if not fresh:
            break
        found |= fresh
        run = again(replace(plan, settled=made_global_after(found.values())))
    return list(found.values())


def made_global_after(reductions: Iterable[escapes.Placed]) -> dict[ast.stmt, tuple[ast.expr, ...]]:
    """The accumulators that are made global after each loop."""
    settled: dict[ast.stmt, tuple[ast.expr, ...]] = {}
    for place in reductions:
        if place.after is not None:
            settled[place.after] = (*settled.get(place.after, ()), place.node)
    return settled


def reduced(
    again: Callable[[Plan], Interpreter], plan: Plan, run: Interpreter, before: list[escapes.Placed]
) -> tuple[Interpreter, list[escapes.Placed], list[escapes.Placed]]:
    """Make escaping values global until none is left that can be, or fewer are where rows are gathered first."""
    found = _reduce_all(again, plan, run, [], before)
    rows = escapes.given_instead(found[2], run)
    if rows:
        other = _reduce_all(again, plan, run, rows, before)
        if len(other[2]) < len(found[2]):
            return other
    return found


def _reduce_all(
    again: Callable[[Plan], Interpreter],
    plan: Plan,
    run: Interpreter,
    rows: list[escapes.Placed],
    before: list[escapes.Placed],
) -> tuple[Interpreter, list[escapes.Placed], list[escapes.Placed]]:
    """The analysis with what is made global, beginning with ``rows``, what that is, and what is left. ``before`` is
    global already."""
    reductions = {place.node: place for place in before}
    leftover: list[escapes.Placed] = []
    given = plan.reduced
    for _ in range(ROUNDS):
        placed = rows or escapes.placed(escapes.escapes(run, rank_zero_statements(run)), run)
        rows = []
        leftover = [place for place in placed if not _is_reducible(place) or _shapes_rows(place, run)]
        placed = [*(escapes.summed_up_before(run, leftover) if leftover else ()), *placed]
        fresh = {p.node: p for p in placed if _is_reducible(p) and not _shapes_rows(p, run)}
        fresh = {node: place for node, place in fresh.items() if node not in reductions}
        fresh = _first(fresh, run)
        if not fresh:
            break
        reductions.update(fresh)
        nodes = frozenset(p.node for p in reductions.values() if p.after is None)
        plan = replace(plan, reduced=given | nodes, settled=made_global_after(reductions.values()))
        run = again(plan)
    needless = _made_global_by_rows(again, replace(plan, reduced=given, settled={}), reductions)
    if needless:
        reductions = {node: place for node, place in reductions.items() if node not in needless}
        plan = replace(plan, reduced=plan.reduced - needless)
        run = again(plan)
    return run, list(_restated(again, plan, reductions).values()), leftover


def _restated(
    again: Callable[[Plan], Interpreter], plan: Plan, reductions: dict[ast.expr, escapes.Placed]
) -> dict[ast.expr, escapes.Placed]:
    """The reductions, where what others make global makes a sum of what was a mean: `loss.item()`, once the number that
    the loss is divided by is that of all ranks."""
    changing = any(each.spread is ROWS or each.event.kind == "statistic" for each in reductions.values())
    reports = {
        node
        for node, place in reductions.items()
        if place.spread in (Spread.MEAN, Spread.SUM) and place.event.kind in REPORTS and place.after is None
    }
    if not changing or not reports:
        return reductions
    values = again(replace(plan, reduced=plan.reduced - reports)).values
    spreads = {node: values.get(node, NOTHING).spread for node in reports}
    return {
        node: replace(place, spread=spreads[node]) if spreads.get(node) in (Spread.MEAN, Spread.SUM) else place
        for node, place in reductions.items()
    }


REPORTS = frozenset("format print log tracker discarded".split())


def _made_global_by_rows(
    again: Callable[[Plan], Interpreter], plan: Plan, reductions: dict[ast.expr, escapes.Placed]
) -> frozenset[ast.expr]:
    """The numbers that are those of all ranks once rows are gathered, and would be counted several times: `counts`,
    which are counted up for each of `update(gather_rows(t), ...)`, where they are tested."""
    rows = frozenset(node for node, place in reductions.items() if place.spread is ROWS)
    others = [
        n for n, place in reductions.items() if place.spread in (Spread.SUM, Spread.COUNT) and place.after is None
    ]
    if not rows or not others:
        return frozenset()
    run = again(replace(plan, reduced=plan.reduced | rows))
    values = {node: run.values.get(node, NOTHING) for node in others}
    return frozenset(n for n, each in values.items() if not each.spread.is_local and not run.holds_local(each))


def _first(fresh: dict[ast.expr, escapes.Placed], run: Interpreter) -> dict[ast.expr, escapes.Placed]:
    """Those that lie upstream of the others: what they make global may leave nothing to do for the rest."""
    upstream = {
        node: place
        for node, place in fresh.items()
        if place.after is not None
        or place.event.kind == "answer"  # of a closure, which others may call as well
        or _is_added_to_attribute(place)  # which whatever reports it reads
        or not any(each is node for each in ast.walk(place.event.node))
    }
    chosen = upstream or fresh
    made = {node: escapes.roots(node, run, set()) for node in chosen}
    rows = {node for node, place in chosen.items() if place.spread is ROWS}
    stored = {node for node, place in chosen.items() if place.event.kind in ("store", "set_item")}
    followed = rows | stored
    through_lists = {node: escapes.upstream(node, run) if followed else set() for node in chosen}
    counted = {node: escapes.upstream(node, run, counted=True) for node in chosen} if len(chosen) > 1 else {}
    kept = {
        origin: node
        for node, place in chosen.items()
        if place.event.kind in ("store", "set_item")
        for _, origin in run.values.get(node, NOTHING).made
    }
    """What is put into a container is read from there by others."""
    settled = {(place.source, ast.unparse(node)) for node, place in chosen.items() if place.after is not None}

    def waits(node: ast.expr) -> bool:
        others, place = chosen.keys() - {node}, chosen[node]
        read = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))
        return (
            bool(made[node] & others)
            or bool(through_lists[node] & followed - {node})  # a loss of rows that lists keep
            or bool(counted.get(node, set()) & others)  # `metric[1]`, after `metric.add(loss, correct)`
            or place.after is None
            and any((place.source, ast.unparse(each)) in settled for each in read)  # `cm.sum(1)`, `cm` being reduced
            or any(each in others for each in ast.walk(node))
            or any(kept.get(each, node) is not node for each in made[node])
        )

    return {node: place for node, place in chosen.items() if not waits(node)} or chosen


def _is_added_to_attribute(place: escapes.Placed) -> bool:
    """Whether an object keeps it from step to step: `self.total += x.sum(0)`."""
    if place.event.kind != "state":
        return False
    statement = place.event.source.statement(place.event.node)
    return isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Attribute)


@once_a_run
def rank_zero_statements(run: Interpreter) -> list[Site]:
    """The statements that rank 0 alone will run."""
    prepared, alone = regions.preparations(run)
    writes = regions.writes(run, frozenset(site.node for site in (*prepared, *alone)), naming.folders_apart(run))[0]
    return [*alone, *writes]


def _is_reducible(place: escapes.Placed) -> bool:
    return place.spread.is_reducible or place.spread is ROWS


def _shapes_rows(place: escapes.Placed, run: Interpreter) -> bool:
    """Whether a number of samples says how many rows a function makes for the step: `sampler.sample(len(x))`."""
    call = place.source.parents.get(place.node)
    if place.spread is not Spread.COUNT or not isinstance(call, ast.Call) or place.node not in call.args:
        return False
    made = run.values.get(call, NOTHING)
    parts = [part for each in made.things if isinstance(each, Items) for part in each.parts]
    return any(each.spread is ROWS for each in (made, *parts))


def filled_up(reductions: Iterable[Reduction]) -> Iterator[Concern]:
    """Where rows are gathered that may be longer on one rank than on another, which the script does not fill up."""
    for each in (reduction for reduction in reductions if reduction.padded):
        message = (
            "is filled up with zeros where samples of another rank are longer, not as the script pads: scores that do "
            "not leave padding out differ from those of one process"
        )
        yield Concern("AD601", each.source, each.node, message, Severity.WARNING)


def reduction_at(place: escapes.Placed, hoist: ast.stmt | None, before: Interpreter) -> Reduction:
    """What a rule is told of a number that is made global; ``before`` that knows what each rank has."""
    over = (
        operations.averaged(place.node) if place.spread is Spread.FEWER and isinstance(place.node, ast.expr) else None
    )
    value = before.values.get(place.node, NOTHING) if isinstance(place.node, ast.expr) else NOTHING
    padded = place.spread is Spread.ROWS and value.axes != 1 and before.has_padding(value)
    return Reduction(place.source, place.node, place.spread, hoist, place.after, place.switch, over, padded)
