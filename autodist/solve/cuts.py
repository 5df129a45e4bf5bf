"""Where to communicate: the expressions that are made global so that what is demanded is replicated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.call import ROWS
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, Region, Value, closure, held, joined
from autodist.solve.alone import Alone
from autodist.solve.costs import cheapest
from autodist.solve.demands import Demand, demands, is_given_a_model
from autodist.solve.facts import Facts, is_mean, is_number_of_samples, is_sum, is_weighted
from autodist.solve.memories import given_to_keep, remembered
from autodist.solve.search import Cut, Search
from autodist.solve.written import contents, is_put, parts_of, put_in, readers
from autodist.source import walk

OTHERWISE = "the same expression lies one way in one context and another way in another"
ROUNDS = 6
ON_HOST = frozenset("tolist numpy cpu".split())
"""What is done to rows of which each rank has its own as well once they are gathered."""


def cuts(
    program: Program,
    placements: Placements,
    alone: Alone | None = None,
    settled: frozenset[ast.AST] = frozenset(),
    asked: Sequence[Demand] = (),
    training: bool = False,
) -> list[Cut]:
    """The expressions to make global, each once, in the order in which they are demanded; others are ``settled``. More
    may be ``asked`` for; for ``training`` only that, and what losses and later steps are computed from."""
    alone = alone or Alone()
    facts = Facts(program, placements, alone, settled)
    found = {each.node: each for each in remembered(facts)}
    wanted = [Demand("memory" if each in facts.learnt else "state", each) for each in facts.kept()]
    shown = () if training else demands(program, alone)
    for demand in [*(wanted or _lost(facts)), *asked, *shown]:
        for cut in _met(demand, facts):
            before = found.setdefault(cut.node, cut)
            if before.is_met and before.placement != cut.placement and not _is_alike(before.placement, cut.placement):
                found[cut.node] = replace(cut, placement=PerRank("join", OTHERWISE))
    narrowed = [_narrowed(each, facts) for each in found.values()]
    return [_narrowed(each, facts) for each in cheapest(narrowed, program, placements, facts.barred)]


def _around(cut: Cut, facts: Facts) -> Iterator[Cut]:
    """What to make global so that all ranks come to where something is made global: of the tests around it."""
    inner: ast.AST = cut.node
    for each in cut.source.ancestors(cut.node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        if isinstance(each, (ast.If, ast.IfExp, ast.While)) and inner is not each.test:
            tested = [op for op in facts.at(each.test).operations if not facts.is_alike(op)]
            for op in sorted(tested, key=lambda op: op.number):
                yield from Search(facts, Demand("test", op)).at(each.test, Value(frozenset(tested)), op)
        inner = each


def _lost(facts: Facts) -> Iterator[Demand]:
    """The losses that are means over all samples once numbers are global that no gradient flows through."""
    for each in facts.mixed_losses():
        demand = Demand("loss", each)
        found = list(_met(demand, facts))
        even = (cut.is_kept or _is_evenly_reduced(cut.placement) and not facts.counts(cut.node) for cut in found)
        if all(cut.is_met for cut in found) and all(even):
            yield demand


def _is_evenly_reduced(placement: Placement) -> bool:
    """Whether it is one number or tensor on each rank, none of which counts more than another."""
    return isinstance(placement, Partial) and not is_weighted(placement)


def solved(
    program: Program,
    plan: Plan,
    catalog: Catalog,
    alone: Alone,
    asked: Sequence[Demand] = (),
    training: bool = False,
) -> list[Cut]:
    """The expressions to make global so that all demands are met, or those of ``training`` alone. What others are
    computed from comes first: once it is global, they may be so as well."""
    chosen: dict[ast.expr, Cut] = {}
    left: list[Cut] = []
    placements: Placements | None = None
    begun = plan
    for _ in range(ROUNDS):
        placements = as_reported(program, plan, catalog)
        if (alike := _going_on_alike(program, plan, placements)) != plan:
            placements = as_reported(program, alike, catalog)
        settled = frozenset(node for each in chosen.values() for node in (each.node, *each.read))
        fresh = [each for each in cuts(program, placements, alone, settled, asked, training) if each.node not in chosen]
        fresh = _without_counts(fresh, placements, program, alike, catalog)
        met = [each for each in fresh if each.is_met]
        left = [each for each in fresh if not each.is_met]
        entered = {region.function for region in _given(met, program)}
        first = _first(fresh, program)
        now = [each for each in first if each.is_met and each.source.function(each.node) not in entered]
        now = now or [each for each in first if each.is_met] or met
        chosen.update((each.node, each) for each in now)
        if len(now) == len(fresh) and not any(each.is_behind or isinstance(each.placement, Shard) for each in now):
            break
        if not now:
            break
        plan = made_global(now, program, plan)
    lost = {each.demand for each in left if each.is_behind}  # what was begun for these is of no use
    chosen = {node: each for node, each in chosen.items() if not (each.is_behind and each.demand in lost)}
    assert placements is not None
    chosen = {each.node: each for each in _needed([*chosen.values()], program, begun, catalog)}
    facts = Facts(program, placements, alone, frozenset(chosen))
    for each in [*chosen.values()]:
        around = list(_around(each, facts))
        if all(test.is_met for test in around):
            chosen |= {test.node: test for test in around if test.node not in chosen}
        else:  # ranks that do not come there would be waited for
            left.append(replace(chosen.pop(each.node), placement=next(e.placement for e in around if not e.is_met)))
    return [*chosen.values(), *left]


def _needed(chosen: list[Cut], program: Program, plan: Plan, catalog: Catalog) -> Iterator[Cut]:
    """Some cuts, without those that others have made global since: a sum over samples that are gathered is the same on
    all ranks, and would be counted as often as there are."""
    kept = [each for each in chosen if not _is_below(each, chosen, program)]
    doubted = [each for each in chosen if each not in kept]
    while doubted and kept:
        lying = as_reported(program, made_global(kept, program, plan), catalog)
        apart = [each for each in doubted if lying.value(program.at(each.node)) not in (None, Replicate())]
        if not apart:
            break
        kept, doubted = kept + apart, [each for each in doubted if each not in apart]
    yield from (each for each in chosen if each in kept)


def _is_below(cut: Cut, others: Iterable[Cut], program: Program) -> bool:
    """Whether it is computed from samples that others gather."""
    gathered = [each for each in others if each is not cut and isinstance(each.placement, Shard)]
    users = {user for each in gathered for op in program.at(each.node).operations for user in program.users[op]}
    users |= {user for user, _ in _kept(gathered, program)}
    return not isinstance(cut.placement, Shard) and not program.depending(users).isdisjoint(
        program.at(cut.node).operations
    )


def _without_counts(
    fresh: list[Cut], placements: Placements, program: Program, plan: Plan, catalog: Catalog
) -> list[Cut]:
    """Some cuts, without numbers of samples that losses are no means with: by which a rank's own samples are laid out,
    or picked."""
    met = [each for each in fresh if each.is_met and is_sum(each.placement)]
    counts = [each for each in met if is_number_of_samples(each.placement)]
    of_losses = [each for each in counts if each.demand.kind == "loss"]
    if not counts:
        return fresh
    tried = as_reported(program, made_global(counts, program, plan), catalog)
    if len(tried.mixed) > len(placements.mixed):
        lost = PerRank("count", OTHERWISE)
        return [replace(each, placement=lost) if each in counts else each for each in fresh]
    helps = not placements.mixed or len(tried.mixed) < len(placements.mixed)
    return fresh if helps else [each for each in fresh if each not in of_losses]


def _going_on_alike(program: Program, plan: Plan, placements: Placements) -> Plan:
    """A plan under which each step is given the same by the one before on all ranks, of what they are to keep alike."""
    facts = Facts(program, placements, Alone())
    taken = {user: dict(held) for user, held in plan.taken.items()}
    for each in facts.kept():
        for user in facts.carried.get(each, ()):
            taken.setdefault(user, {})[each] = Replicate()
    return replace(plan, taken=taken)


def _first(fresh: Sequence[Cut], program: Program) -> list[Cut]:
    """Those that are not computed from others, made global where they are computed or read."""
    made = [program.at(each.node).operations for each in fresh]
    nodes = {node for each in fresh if each.is_met for node in (each.node, *each.read)}
    reading = readers(program)
    below: list[set[Operation]] = []
    for each, here in zip(fresh, made, strict=True):
        everywhere = each.is_met and (isinstance(each.placement, Shard) or _is_returned(each))
        own = {op for op in here if everywhere or each.is_met and op.node is each.node}
        users = {user for op in own for user in program.users[op]}
        users |= {user for node in {each.node, *each.read} & nodes for user in reading.get(node, ())}
        below.append(program.depending(users))

    def is_given(one: int, other: int) -> bool:
        outside = fresh[one].source.function(fresh[one].node) is not fresh[other].source.function(fresh[other].node)
        return outside and _is_returned(fresh[other]) and not made[other].isdisjoint(made[one])

    def waits(one: int) -> bool:
        return any(
            is_given(one, other) or not below[other].isdisjoint(made[one]) and below[one].isdisjoint(made[other])
            for other in range(len(fresh))
            if other != one and not _are_side_by_side(fresh[one], fresh[other])
        )

    return [each for at, each in enumerate(fresh) if not waits(at)]


def _are_side_by_side(one: Cut, other: Cut) -> bool:
    """Whether one loop goes through both: `zip(guesses, labels)`"""
    loops = (each for each in one.source.ancestors(one.node) if isinstance(each, (ast.For, ast.comprehension)))
    return any({one.node, other.node} <= {*walk(each.iter)} for each in loops)


def _is_returned(cut: Cut) -> bool:
    """Whether it is what a function returns: all that call it are given the same."""
    return isinstance(cut.source.parents.get(cut.node), ast.Return)


def _returned(gathered: Sequence[Cut], program: Program) -> Iterator[tuple[Operation, set[Operation]]]:
    """Who is given what functions return that is made global there, or where they are called, and what that is."""
    for each in gathered:
        home = each.source.function(each.node) if _is_returned(each) else each.node
        for op in held(program.at(each.node)):
            for user in program.users[op] if _is_inside(op, home) else ():
                if not _is_inside(user, home):
                    yield user, {op}


def _kept(gathered: Sequence[Cut], program: Program) -> Iterator[tuple[Operation, set[Operation]]]:
    """Who reads lists that something is put into which is made global there, `window.append(value)`, and what it is."""
    nodes = {node for cut in gathered for node in (cut.node, *cut.read) if is_put(node, cut.source)}
    for user in program.operations if nodes else ():
        pending, seen = [each for value in user.operands for each in value.things], set[object]()
        while pending:
            thing = pending.pop()
            if thing not in seen:
                seen.add(thing)
                pending += [inner for value in contents(thing) for inner in value.things]
                if back := {op for part, _ in put_in(thing) if part in nodes for op in held(program.at(part))}:
                    yield user, back


def _is_inside(operation: Operation, home: ast.AST | None) -> bool:
    """Whether a function, or what is called somewhere, runs an operation."""
    return home is not None and any(home in (each.function, each.node) for each in operation.region.around())


def _given(gathered: Sequence[Cut], program: Program) -> dict[Region, set[Operation]]:
    """The calls of the project's functions that are given some expressions, and what these are."""
    nodes = {node for each in gathered for node in (each.node, *each.read)}
    found = {each: [part for part in parts_of(each.node) if part in nodes] for each in program.calls}
    return {
        each: {op for part in parts for op in program.at(part).operations} for each, parts in found.items() if parts
    }


def made_global(gathered: Sequence[Cut], program: Program, plan: Plan, lying: Placement | None = None) -> Plan:
    """A plan under which all ranks have some values: where they are computed, or where somebody reads them. Another one
    is that under which these are ``lying`` otherwise."""
    lying = lying or Replicate()
    nodes = dict.fromkeys(node for each in gathered for node in (each.node, *each.read))
    placed, taken = dict(plan.placed), {user: dict(held) for user, held in plan.taken.items()}
    reading = readers(program)
    for node in nodes:
        made = program.made_at.get(node, ())
        placed |= {each: lying for each in made if each.name != "iterate"}
        for user in (*made, *(each for each in reading.get(node, ()) if each.node not in nodes)):
            taken.setdefault(user, {}).update(dict.fromkeys(program.at(node).operations, lying))
    for user, back in (*_returned(gathered, program), *_kept(gathered, program)):
        taken.setdefault(user, {}).update(dict.fromkeys(back, lying))
    given = _given(gathered, program)
    for user in program.operations if given else ():
        for region in user.region.around():
            if region in given:
                taken.setdefault(user, {}).update(dict.fromkeys(given[region], lying))
    return replace(plan, placed=placed, taken=taken)


def as_reported(program: Program, plan: Plan, catalog: Catalog) -> Placements:
    """How values lie where they are shown: losses that relate the samples of a batch are seen to apart, and then are
    means like others."""
    placements = propagate(program, plan, catalog=catalog)
    ends = {each for effect in program.of("backward") for each in held(joined(effect.operation.inputs[:1]))}
    losses = closure(ends, lambda each: _multiplied(each, placements))
    mixed: dict[Operation, Placement] = {
        each: Partial("mean", ROWS) for each in losses if isinstance(placements.of.get(each), PerRank)
    }
    if not mixed:
        return placements
    found = propagate(program, replace(plan, placed={**plan.placed, **mixed}), catalog=catalog)
    return replace(found, mixed=frozenset(mixed))


def _multiplied(operation: Operation, placements: Placements) -> Iterator[Operation]:
    """The loss of which another one is a multiple: `loss / 4`, `scaler.scale(loss)`"""
    known = operation.known
    scaled = "scaler" in getattr(operation.owner, "roles", ())
    given = [each for value in operation.operands for each in value.operations]
    apart = [each for each in given if placements.of.get(each, Replicate()) != Replicate()]
    if len(apart) == 1 and (scaled or known is not None and known.cls in ("same", "linear", "multiply", "divide")):
        yield from apart if known is None or known.cls != "divide" or apart[0] in operation.inputs[0].operations else ()


def _met(demand: Demand, facts: Facts) -> Iterator[Cut]:
    """What to make global for a demand."""
    search = Search(facts, demand)
    operation = demand.operation
    if demand.kind == "test" and (isinstance(facts.lies(operation), Each) or facts.goes_through(operation)):
        return  # each rank decides for its own samples, one by one
    if demand.part is not None:
        yield from search.at(demand.part, facts.at(demand.part), operation)
        return
    if demand.kind == "test" and isinstance(operation.node, ast.expr):
        yield from search.at(operation.node, Value(frozenset([operation])), operation)
        return
    if demand.kind == "state" and isinstance(operation.node, ast.Call | ast.BinOp) and not facts.is_changing(operation):
        yield from search.at(operation.node, Value(frozenset([operation])), operation)
        return
    found = list(search.given_to(operation, demand.kind not in ("write", "state", "loss")))
    if demand.kind == "handed" and is_given_a_model(operation):  # a rank's own samples will do
        found = [each for each in found if not isinstance(each.placement, Shard)]
    kept = [each for each in found if not each.is_met] if demand.kind in ("state", "loss") else []
    given = [given_to_keep(each, facts) for each in kept]
    yield from (each for several in given for each in several) if kept and all(given) else found


def _narrowed(cut: Cut, facts: Facts) -> Cut:
    """In ``100 * correct / n`` only ``correct`` has to be reduced: the number itself is exact."""
    node, placement = cut.node, cut.placement
    while isinstance(placement, Shard) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if node.func.attr not in ON_HOST or not isinstance(facts.placement(facts.at(owner)), Shard):
            break
        node = owner
    while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)):
        if not is_sum(placement) or is_number_of_samples(placement):
            break
        sides = [(node.left, node.right), (node.right, node.left)]
        found = [
            a
            for a, b in sides
            if is_sum(facts.placement(facts.at(a))) and facts.placement(facts.at(b)) in (None, Replicate())
        ]
        if not found:
            break
        node = found[0]
    return replace(cut, node=node, read=cut.read | {cut.node})


def _is_alike(one: Placement, other: Placement) -> bool:
    """Whether the same communication makes values global that lie one way or another."""
    return all(map(is_mean, (one, other))) or all(map(is_sum, (one, other)))
