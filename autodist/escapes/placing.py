"""Where each escape is made global: at its expression, after a loop, or where a function is given it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autodist.escapes.origins import (
    fed_to_losses,
    is_parameter,
    is_rebound_whole,
    is_sometimes_whole,
    learnt_from,
    roots,
    sorted_sites,
    trains,
)
from autodist.escapes.resolving import Escape, resolve
from autodist.escapes.rows import holds_rows
from autodist.interpreter import Event, Interpreter, Loop
from autodist.source import Source
from autodist.spread import COUNT, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors.picking import picks
from autodist.values import NOTHING, Function, Items, Object, Table, drawn_from

SUMMING = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Placed:
    """A reduction, at an expression or, for accumulators, after a loop."""

    source: Source
    node: ast.expr
    spread: Spread
    after: ast.stmt | None
    event: Event
    switch: str | None = None


def placed(found: list[Escape], run: Interpreter) -> list[Placed]:
    """Where to reduce: a name that escapes more than once is reduced where it is bound."""
    groups: dict[frozenset[tuple[Source, ast.expr]], list[Escape]] = {}
    result: dict[ast.AST, Placed] = {}
    for escape in found:
        if isinstance(escape.node, ast.Name) and isinstance(escape.node.ctx, ast.Store):
            bound = escape.source.statement(escape.node)
            result.setdefault(escape.node, Placed(escape.source, escape.node, escape.spread, bound, escape.event))
            continue
        value = run.values.get(escape.node, NOTHING)
        key = (
            value.made
            if isinstance(escape.node, (ast.Name, ast.Attribute, ast.Subscript)) and value.made
            else frozenset([(escape.source, escape.node)])
        )
        groups.setdefault(key, []).append(escape)
    for key, group in groups.items():
        place = _shared_place(key, group, run) if len(group) > 1 else None
        if place is not None:
            result.setdefault(place.node, place)
            continue
        for escape in group:
            result.setdefault(escape.node, Placed(escape.source, escape.node, escape.spread, None, escape.event))
    return [_settled(each, run) for place in result.values() for each in _switched(place, run)]


def summed_up_before(run: Interpreter, stuck: Sequence[Placed] = ()) -> Iterator[Placed]:
    """The sums and means over this rank's samples of loops that take no training step, where losses, or what cannot be
    made global itself, are computed from them: the centre of all features, the weights of classes by their numbers."""
    wanted = set(learnt_from(run)) if not stuck else set()
    for place in stuck:
        wanted |= roots(place.node, run, set())
    _follow_lists(wanted, run)
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    passes = {event.node for event in run.of("iterate") if any(drawn_from(event.value))} - training
    sums: dict[ast.AugAssign, list[Event]] = {}
    for event in run.of("accumulate"):
        if isinstance(event.node, ast.AugAssign) and event.node.value in wanted:
            sums.setdefault(event.node, []).append(event)
    for node, events in sums.items():
        source, target = events[0].source, node.target
        spreads = {each.value.spread for each in events}
        spread = MEAN if spreads == {MEAN} else SUM
        graph = any(each.value.models for each in events)
        if not isinstance(target, ast.Name) or not spreads <= {spread, COUNT} or graph:
            continue
        names = (n for n in ast.walk(source.home(node)) if isinstance(n, ast.Name) and n.id == target.id)
        uses = [Escape(source, each, spread, events[0]) for each in names if each is not target]
        loop = _outermost_loop(source, node, uses)
        if loop in passes and not any(each.on_one_rank for each in events):
            yield Placed(source, target, spread, loop, events[0])


def upstream(node: ast.expr, run: Interpreter, counted: bool = False) -> set[ast.expr]:
    """The expressions that ``node`` is computed from, also through lists that these were put into, or ``counted`` up
    in."""
    found = roots(node, run, set()) | {each for each in ast.walk(node) if isinstance(each, ast.expr)}
    _follow_lists(found, run, counted)
    return found


def _follow_lists(found: set[ast.expr], run: Interpreter, counted: bool = False) -> None:
    """Add what was put into the lists among some expressions: `weights.append(1 / number)`; also what is ``counted`` up
    in them."""
    fresh, seen = set(found), set[ast.AST]()
    while fresh:
        lists = {thing for node in fresh for thing in run.values.get(node, NOTHING).things if isinstance(thing, Items)}
        parts = {made for each in lists for part in (*each.parts, each.element) for _, made in part.made}
        stored = {stored for each in lists for _, stored in each.stores} | (parts if counted else set())
        made = {found for each in stored for found in (each, *roots(each, run, seen))}
        fresh = {n for each in made for n in ast.walk(each) if isinstance(n, ast.expr)} - found
        found |= fresh


def _settled(place: Placed, run: Interpreter) -> Placed:
    """A sum over the ranks of what some of the time is global already would count it several times, and so would rows
    of all ranks."""
    if place.switch is not None and place.spread in (SUM, COUNT):
        return place
    if (
        place.spread is ROWS
        and place.after is None
        and (loop := _over_either(place.source, place.node, run)) is not None
    ):
        switch = _sampler_test(loop, place.source, run)
        return replace(place, switch=switch, spread=ROWS if switch is not None else LOCAL)
    if place.spread is ROWS and place.after is None and is_rebound_whole(place.node, place.source, run):
        return replace(place, spread=LOCAL)
    if place.spread in (SUM, COUNT) and place.after is None:
        # of batches made by hand, it is known of every expression what it has been
        also_whole = isinstance(place.node, ast.Call) and SAME in run.spreads.get(place.node, ())
        if also_whole and place.event.kind != "statistic" or _is_of_either(place, run):
            return replace(place, spread=LOCAL)
    if place.event.kind == "statistic" and place.spread is COUNT and SAME in run.spreads.get(place.node, ()):
        switch = _gradient_test(place, run)
        return replace(place, switch=switch, spread=COUNT if switch is not None else LOCAL)
    if (
        place.spread not in (MEAN, Spread.FEWER, Spread.MOST, Spread.LEAST)  # which are their own, of equal values
        and place.after is None
        and is_sometimes_whole(place.node, place.source, run)
    ):
        return replace(place, spread=LOCAL)
    return place


def _is_of_either(place: Placed, run: Interpreter) -> bool:
    """Whether a number is one of samples that now a loader gave which is shared out, and now another one."""
    origins = run.values.get(place.node, NOTHING).origins
    shared = {run.shares_out(o) for o in origins if isinstance(o, Object) and "loader" in o.roles}
    rows = (each for each in upstream(place.node, run) if each in run.sources) if len(shared) > 1 else ()
    return any(_over_either(run.sources[each], each, run) is not None for each in rows)


def _over_either(source: Source, node: ast.expr, run: Interpreter) -> ast.For | None:
    """The loop around rows that runs over loaders that are shared out, and over others, too."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(ancestor, ast.For):
            names = (n for n in ast.walk(ancestor.iter) if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)))
            loaders = [each for name in names for each in run.values.get(name, NOTHING).objects("loader")]
            if {run.shares_out(each) for each in loaders} == {True, False}:
                return ancestor
    return None


def _gradient_test(place: Placed, run: Interpreter) -> str | None:
    """A test of a mean that is divided by the number of its samples, which holds where it trains on a share of them,
    and not where it is evaluated on all."""
    node = place.source.parents.get(place.node)
    mean = node.target if isinstance(node, ast.AugAssign) else node.left if isinstance(node, ast.BinOp) else None
    divisions = [event for event in run.of("divided") if event.node is place.node]
    shares = {event.value.spread is COUNT for event in divisions if event.grad and event.detail.models}
    others = {event.value.spread is COUNT for event in divisions if not (event.grad and event.detail.models)}
    if not isinstance(mean, (ast.Name, ast.Attribute)) or shares != {True} or True in others:
        return None
    return f"{place.source.code(mean)}.requires_grad"


def _switched(place: Placed, run: Interpreter) -> Iterator[Placed]:
    """A sum that only some runs of the code compute over a share of the samples (the training phase of a loop over
    phases) is reduced in those alone, where it was accumulated."""
    if place.spread not in (SUM, COUNT) or place.after is not None:
        yield place
        return
    accumulators = [
        event
        for event in run.events
        if event.kind == "accumulate" and isinstance(event.node, ast.AugAssign) and event.source is place.source
    ]
    made = roots(place.node, run, set())
    ours = [event for event in accumulators if event.node.value in made]  # type: ignore[attr-defined]
    shared = [event for event in ours if not event.value.spread.is_local]
    if not shared:
        yield _by_loader(place, ours, run)
        return
    if (switch := _in_the_loop(place, ours)) is not None:
        yield replace(place, switch=switch)
        return
    done: set[ast.AST] = set()
    for event in ours:
        node = event.node
        assert isinstance(node, ast.AugAssign)
        if node in done:
            continue
        done.add(node)
        same = [e for e in ours if e.node is node]
        switch = distinguishing(
            [dict(e.detail.const) for e in same if e.value.spread.is_local],
            [dict(e.detail.const) for e in same if not e.value.spread.is_local],
        )
        uses = [Escape(place.source, place.node, place.spread, place.event)]
        loop = _outermost_loop(event.source, node, uses)
        if switch is None and isinstance(loop, ast.For):
            switch = _sampler_test(loop, event.source, run)
        target = _added_to(node.target, loop, run)
        name = target.id if isinstance(target, ast.Name) else None
        if switch is None or loop is None or target is None or name and not _starts_anew(name, loop, event.source):
            yield Placed(place.source, place.node, Spread.LOCAL, None, place.event)
        else:
            yield Placed(event.source, target, SUM, loop, place.event, switch)


def _in_the_loop(place: Placed, ours: list[Event]) -> str | None:
    """The test that tells where a sum is over a share of the samples, for what is reported of it meanwhile: the running
    accuracy of `for phase in ("train", "val")`."""
    uses = [Escape(place.source, place.node, place.spread, place.event)]
    home = place.source.home(place.node)
    sums = {event.node for event in ours}
    if any(place.source.home(each) is not home for each in sums) or len(sums) != 1:
        return None
    (node,) = sums
    if not isinstance(node, ast.AugAssign) or _outermost_loop(place.source, node, uses) is not None:
        return None
    return distinguishing(
        [dict(each.detail.const) for each in ours if each.value.spread.is_local],
        [dict(each.detail.const) for each in ours if not each.value.spread.is_local],
    )


def _by_loader(place: Placed, ours: list[Event], run: Interpreter) -> Placed:
    """The same place, or where a sum over a loader that may be shared out or not is made global if it is."""
    either = next((loop for event in ours for loop in event.loops if _may_be_either(loop, event, run)), None)
    if either is None:
        return place
    switch = _sampler_test(either.node, either.source, run) if isinstance(either.node, ast.For) else None
    sums = {event.node: event.source for event in ours if isinstance(event.node, ast.AugAssign)}
    node, source = next(iter(sums.items()))
    outer = _outermost_loop(source, node, [Escape(place.source, place.node, place.spread, place.event)])
    target = _added_to(node.target, outer, run)
    if switch is None or len(sums) != 1 or outer is None or target is None or either.node not in ast.walk(outer):
        return Placed(place.source, place.node, Spread.LOCAL, None, place.event)
    return Placed(source, target, SUM, outer, place.event, switch)


def _added_to(target: ast.expr, loop: ast.stmt | None, run: Interpreter) -> ast.expr | None:
    """What is made global after a loop: all of `counts` where it adds to `counts[label]`, now one, now another.
    None for a dict, of which ranks may have other keys."""
    bound = (
        {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} if loop else set()
    )
    while isinstance(target, ast.Subscript):
        if bound.isdisjoint(n.id for n in ast.walk(target.slice) if isinstance(n, ast.Name)):
            break
        target = target.value
        if any(isinstance(thing, Table) for thing in run.values.get(target, NOTHING).things):
            return None
    return target


def _may_be_either(loop: Loop, event: Event, run: Interpreter) -> bool:
    """Whether a loop may run over a loader that is shared out or one that is not: only when it runs, one can tell."""
    origins = [origin for origin in event.value.origins if isinstance(origin, Object) and "loader" in origin.roles]
    seen = any(not run.shares_out(origin) for origin in origins)
    kinds: set[bool] = set()
    for node in ast.walk(loop.node.iter) if isinstance(loop.node, ast.For) else ():
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            value = run.values.get(node, NOTHING)
            direct = {run.shares_out(loader) for loader in value.objects("loader")}
            tuples = [part for thing in value.things if isinstance(thing, Items) for part in thing.parts]
            among = {run.shares_out(loader) for part in tuples for loader in part.objects("loader")}
            if seen or direct and among:  # one that may be a loader or a pair of them was bound under a condition
                kinds |= direct | among
    return len(kinds) > 1


def _sampler_test(loop: ast.For, source: Source, run: Interpreter) -> str | None:
    """A test of the loader itself, where the same function runs over loaders that are sharded and that are not."""
    for node in ast.walk(loop.iter):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            things = run.values.get(node, NOTHING).things
            if things and all(isinstance(t, Object) and "loader" in t.roles for t in things):
                return f"isinstance({source.code(node)}.sampler, DistributedSampler)"
    return None


def distinguishing(
    these: list[dict[str, object]], others: list[dict[str, object]], best: str | None = None
) -> str | None:
    """An expression over constants in reach that holds in ``these`` contexts and in none of the ``others``; of the
    variable that is known to say ``best`` what they are for, if it tells them apart."""
    if not these or not others:
        return None
    for name in sorted(these[0], key=lambda name: (name != best, name)):
        values = {repr(names.get(name)) for names in these}
        rest = {repr(names.get(name)) for names in others}
        if len(values) == 1 and not values & rest and all(name in names for names in (*these, *others)):
            const = these[0][name]
            if const is True or const is False:
                return name if const else f"not {name}"
            if isinstance(const, str):
                return f'{name} == "{const}"' if '"' not in const else f"{name} == {const!r}"
            return f"{name} == {const!r}"
    return None


def _shared_place(key: frozenset[tuple[Source, ast.expr]], group: list[Escape], run: Interpreter) -> Placed | None:
    if len(key) != 1:
        return None
    ((source, made),) = key
    if made in learnt_from(run):
        return None
    statement = source.statement(made)
    first = group[0]
    spread = run.values.get(made, NOTHING).spread
    if isinstance(statement, ast.AugAssign) and statement.value is made:
        loop = _outermost_loop(source, statement, group)
        if loop is None or not isinstance(statement.target, ast.Name) or not first.spread.is_reducible:
            return None
        sums = [event.value for event in run.of("accumulate") if event.node is statement]
        if not all(value.spread.is_local for value in sums):
            return None  # an evaluation comes here, too, with all samples
        if _starts_anew(statement.target.id, loop, source):
            return Placed(source, statement.target, first.spread, loop, first.event)
        return None
    if not isinstance(statement, ast.Assign) or statement.value is not made or not spread.is_reducible:
        return None
    block = source.block(statement)
    uses = [escape.source.statement(escape.node) for escape in group]
    if all(escape.source is source for escape in group) and not any(
        use in block or _within(source, use, statement) for use in uses
    ):
        return None
    conditional = [u for u in uses if u not in block]
    if len(conditional) == len(uses) and _in_loop(source, statement):
        return None
    return Placed(source, made, spread, None, first.event)


def _starts_anew(name: str, loop: ast.stmt, source: Source) -> bool:
    """Whether a sum begins again before a loop that it is made global after: one that goes on from epoch to epoch would
    hold what all ranks have, and add this rank's to it."""
    outer = next((each for each in source.ancestors(loop) if isinstance(each, SUMMING)), None)
    if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return not any(isinstance(each, ast.Global) and name in each.names for each in ast.walk(outer))
    around = {loop, *source.ancestors(loop)}
    inside = set(ast.walk(loop))
    bound = [each for each in ast.walk(outer) if isinstance(each, (ast.Assign, ast.AnnAssign))] if outer else []
    always = [each for each in bound if each not in inside and not around.isdisjoint(source.block(each))]
    targets = [n for each in always for n in ast.walk(each) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return outer is None or any(each.id == name for each in targets)


def _within(source: Source, use: ast.stmt, statement: ast.stmt) -> bool:
    """Whether ``use`` stands in the block of ``statement`` or deeper."""
    parent = source.parents.get(statement)
    return any(ancestor is parent for ancestor in source.ancestors(use))


def _in_loop(source: Source, node: ast.AST) -> bool:
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.For, ast.While)):
            return True
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False


def _outermost_loop(source: Source, statement: ast.stmt, group: list[Escape]) -> ast.stmt | None:
    """The largest loop around an accumulator that none of its uses stands in."""
    uses = [escape.node for escape in group]
    found: ast.stmt | None = None
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(ancestor, (ast.For, ast.While)):
            inside = set(map(id, ast.walk(ancestor)))
            if any(id(use) in inside for use in uses):
                break
            found = ancestor
    return found


def reducible(found: list[Placed]) -> Mapping[ast.AST, Placed]:
    """Those that can be reduced, by expression."""
    return {place.node: place for place in found if place.spread.is_reducible}


def given_instead(leftover: list[Placed], run: Interpreter) -> list[Placed]:
    """Rows to gather where functions are given them, of which they report what cannot be reduced: a score of each
    picture, or a logger that is told of shared and of whole data. What they compute is then that of the whole batch."""
    found: dict[ast.expr, Placed] = {}
    for place in leftover:
        if place.event.kind in ("test", "state", "statistic") or place.event.inside_forward:
            continue
        for source, call, given in _ways_in(place, run):
            local = [each for each in given if run.values.get(each, NOTHING).spread.is_local]
            if not local or call in learnt_from(run) or trains(call, run):
                continue
            rows = [_rows_of(each, source, place.event, run) for each in local]
            if all(rows):
                found.update((each.node, each) for several in rows for each in several)
                break
    return list(found.values())


def _rows_of(node: ast.expr, source: Source, event: Event, run: Interpreter) -> list[Placed]:
    """What to gather for something that is given: it holds rows itself, or is joined of those of several batches."""
    if _is_row_each(node, run):
        return [Placed(source, node, ROWS, None, event)]
    if not isinstance(node, ast.Name) or is_parameter(node, source):
        return []
    joined = list(resolve(node, source, replace(event, kind="format"), run, set()))
    fits = all(each.spread is ROWS and _is_row_each(each.node, run) for each in joined)
    return [Placed(each.source, each.node, ROWS, None, event) for each in joined] if fits else []


def _ways_in(place: Placed, run: Interpreter) -> Iterator[tuple[Source, ast.Call, list[ast.expr]]]:
    """The calls by which a reported value comes to be, from the innermost, each with what it is given for that."""
    node = place.node
    for source, made in (place.source, node), *sorted_sites(run.values.get(node, NOTHING)):
        called = run.values.get(made.func, NOTHING).things if isinstance(made, ast.Call) else ()
        if isinstance(made, ast.Call) and any(isinstance(thing, Function) for thing in called):
            yield source, made, [*made.args, *(keyword.value for keyword in made.keywords)]
    home = place.source.function(node)
    kept = (*run.of("accumulate"), *run.of("store"), *run.of("set_item"))  # what is reported may have been kept before
    for calls in dict.fromkeys(event.calls for event in (place.event, *kept)):
        if not calls or calls[-1].function.node is not home:
            continue
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        for call in reversed(calls):
            given = call.given()
            wanted = [given[name] for name in names if name in given]
            if call.node is None or not wanted:
                break
            yield call.source, call.node, list(given.values())
            names = {each.id for expression in wanted for each in ast.walk(expression) if isinstance(each, ast.Name)}
    reported = place.event.source.function(place.event.node)
    # it has returned it
    if home is not None and home is not reported and fed_to_losses(run).isdisjoint(ast.walk(home)):
        for caller, source in run.callers.get(home, {}).items():
            yield source, caller, [*caller.args, *(keyword.value for keyword in caller.keywords)]


def _is_row_each(node: ast.expr, run: Interpreter) -> bool:
    """Whether it holds a row for each of this rank's samples, as many as on the other ranks."""
    value = run.values.get(node, NOTHING)
    plain = value.spread is ROWS and not value.things and picks(value) is None and run.uneven(value) is None
    return plain and holds_rows(node, run, set()) and not _is_passed_on(node, run)


def _is_passed_on(node: ast.expr, run: Interpreter) -> bool:
    """Whether a function hands on what it is given itself: there is where to gather it."""
    return isinstance(node, ast.Name) and node in run.sources and is_parameter(node, run.sources[node])
