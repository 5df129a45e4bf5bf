"""Where ranks may go apart, so that dropout and noise differ between them, and what keeps them alike."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from autodist import regions
from autodist.interpreter import Event, Interpreter, Loop
from autodist.models import Keys, differentiated, keys, optimized_by, optimized_modules, parts, unwrapped
from autodist.placement import Each, Shard
from autodist.program import closure, held, joined
from autodist.randomness.drawing import (
    DRAWS,
    draw_events,
    in_loop,
    is_dropout,
    is_for_a_parameter,
    is_for_one_row,
    is_in,
    is_of_sampler,
    is_parted,
    is_per_sample,
    libraries_of,
)
from autodist.randomness.dropping import drop_inside, drops, has_masks
from autodist.randomness.orders import drawn_beside_torch, picks_of_all
from autodist.randomness.own_noise import adds_noise, augmenting, augmenting_workers
from autodist.script import Apart, Loader, Model
from autodist.solve.draws import Draw
from autodist.solve.facts import is_number_of_samples, is_sum
from autodist.solve.learned import learned
from autodist.solve.steps import given, steps_of
from autodist.source import all_of, last_name, walk
from autodist.values import (
    NOTHING,
    Items,
    Object,
    Value,
    drawn_from,
)

ORDERS = ("randperm", "permutation")
SHARED = ("seed", "random_split", "optimizer", "draw_parameters")
"""What ranks must do alike. An optimizer comes with a new model."""


def diverge(
    run: Interpreter,
    loaders: list[Loader],
    draws: frozenset[object],
    models: list[Model],
    varied: frozenset[str],
    common: Collection[ast.AST] = (),
    once: Collection[ast.AST] = (),
) -> tuple[Apart, ...]:
    """The outermost training loop, or one of each alternative, if dropout or noise in it should differ by rank.
    ``varied`` are the libraries besides torch that draw nothing else, see `noise`; what is drawn in ``common`` comes
    from rank 0, and what is drawn ``once`` for a batch need not differ, either."""
    if draws and (not drawn_beside_torch(draws, run) or acts_by_chance(models, run)):
        return ()
    if (
        any(each.iterable for each in loaders)
        or draws_data(loaders, run, common)
        or decides(run, common)
        or sees_all(run)
    ):
        return ()
    backwards = [e for e in run.events if e.kind == "backward" and e.loops]
    chancy = [model.object for model in models if model.bypassed and _runs_by_chance(model.object, run)]
    bypassed = {part.key for module in chancy for part in parts(module)}  # ranks average the gradients that there are
    used = {e: keys(differentiated(run, e)) for e in backwards}
    alike = {event.loops[0].node for event, keys in used.items() if not bypassed.isdisjoint(keys)}
    augmented = any(each.library in {"torch", *varied} for each in augmenting(loaders, run))
    drops = drop_inside(models, run) or augmented or bool(augmenting_workers(loaders, run))
    found: list[tuple[Event, Loop]] = []
    repeated: set[ast.AST] = set()
    ends: list[int] = []
    for event in backwards:
        outer, start = event.loops[0], _start(event.loops[0], run)
        before = [each for (each, _), end in zip(found, ends, strict=True) if start < end]
        if outer.node in alike or any(_has_run(each, event) for each in before):
            continue  # the ranks have gone apart already
        for loop, again in _may_go_apart(event, run):
            end = _alike_again(loop, outer, run)
            if end is not None and _draws_noise(loop, end, run, drops, varied, {*common, *once}):
                found.append((event, loop))
                repeated |= {loop.node} if again else set()
                ends.append(end)
                break
    return tuple(Apart(loop.source, loop.node, loop.node in repeated) for _, loop in found)


def acts_by_chance(models: list[Model], run: Interpreter) -> bool:
    """Whether a model that drops numbers out is asked in steps about what all ranks have, and losses go by what it
    says: seeded apart, they would act each in its own way, and remember other things to learn from."""
    if not has_masks(models, run):
        return False
    asked = (event for event in run.of("forward") if event.loops and not event.inside_forward)
    program = run.runs.program
    ends = (op for each in steps_of(program).backward for op in held(joined(each.inputs[:1])))
    said = closure(ends, given)
    return any(
        not said.isdisjoint(program.at(event.node).operations)
        and run.is_given_alike(event.node)
        and not any(each.attr == "eval" for loop in event.loops for each in all_of(loop.node, ast.Attribute))
        for event in asked
        if any(loop.node in run.step_loops for loop in event.loops)
    )


def sees_all(run: Interpreter) -> bool:
    """Whether a model is given all of the data on every rank, as a graph, and a rank learns from a part of what it
    gives: what it drops, it drops on all of them."""
    if not run.plan.wholes and not run.plan.batches:
        return False
    graded = (event for event in run.of("forward") if event.grad and not event.inside_forward)
    steps = [event for event in graded if not run.step_loops.isdisjoint(loop.node for loop in event.loops)]
    return bool(steps) and all(run.is_given_alike(event.node) for event in steps)


def _runs_by_chance(module: Object, run: Interpreter) -> bool:
    """Whether what a rank draws, or has for samples, says which parts of a module run; not what a step always asks for,
    as by `model(x, return_latents=True)`."""
    found, drawn = learned(run.runs.program), {event.node for event in draw_events(run)}
    tests = [each.test for each in found.deciding(module.node)]
    return any(_goes_by_chance(each, drawn, run) for each in tests) or found.draws_parts(module.node)


def _goes_by_chance(test: ast.expr, drawn: set[ast.AST], run: Interpreter) -> bool:
    """Whether a condition is computed from what a step draws, or from a rank's samples and not only their number."""
    of, steps = run.placements.of, steps_of(run.runs.program)
    facts = {op for op, lying in of.items() if is_sum(lying) and is_number_of_samples(lying)}
    facts |= {op for op in of if op.known is not None and op.known.cls == "fact"}  # `x.is_cuda`
    made = closure(held(run.runs.program.at(test)), lambda op: () if op in facts else op.given)
    own = not run.is_alike(test) and any(isinstance(of.get(each), (Shard, Each)) for each in made)
    return own or any(each.node in drawn and steps.in_pass(each) for each in made)


def drops_alike(
    run: Interpreter,
    models: list[Model],
    apart: tuple[Apart, ...],
    draws: frozenset[object],
    loaders: list[Loader],
    for_all: Collection[ast.AST],
    common: Collection[ast.AST] = (),
) -> bool:
    """Whether masks of dropout, and noise, are those of rank 0 on all ranks, which draw their data from the same
    generator, or decide by what they draw. What is drawn ``for_all`` samples of a batch is shared out."""
    if apart or sees_all(run):
        return False
    if not draws and not draws_data(loaders, run):
        return decides(run, common) or has_masks(models, run, common) or adds_noise(run, for_all)
    return drops(models, run, known=True) or not draws and any(event.inside_forward for event in run.of("random"))


def decides(run: Interpreter, common: Collection[ast.AST] = ()) -> bool:
    """Whether a number that torch draws says whether, or how often, a model runs or learns in a step: `if torch.rand(1)
    < 0.1: continue`. The ranks must agree on it, or some of them wait for what others do not come to; on what is drawn
    in ``common`` they do."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    drawn = {
        event.node
        for event in draw_events(run)
        if not event.inside_forward and not is_per_sample(event, run) and "torch" in libraries_of(event, run)
        if event.node not in common
        if any(loop.node in training for loop in event.loops)
    }
    meeting = [event for kind in ("forward", "backward", "step") for event in run.of(kind)] if drawn else []
    met = {event.node for event in meeting}
    tests = [e.node for e in run.of("test") if not e.inside_forward] if drawn else []
    over = [loop.node.iter for event in meeting for loop in event.loops if isinstance(loop.node, ast.For)]
    orders = {each for each in drawn if isinstance(each, ast.Call) and last_name(each.func) in ORDERS}
    return any(
        _parts_ways(run.sources[each].parents.get(each), met) and not by.isdisjoint(_said(each, run))
        for asked, by in ((tests, drawn), (over, drawn - orders))  # an order is as long as any other
        for each in asked
        if isinstance(each, ast.expr) and each in run.sources
    )


def _parts_ways(statement: ast.AST | None, met: set[ast.AST]) -> bool:
    """Whether what runs below a condition or loop has to be run by all ranks, or leads around such things."""
    if not isinstance(statement, (ast.If, ast.While, ast.For)):
        return False
    leaving = (ast.Continue, ast.Break, ast.Return, ast.Raise)
    inside = [node for block in (*statement.body, *statement.orelse) for node in walk(block)]
    return any(node in met or isinstance(node, leaving) for node in inside)


def _said(test: ast.expr, run: Interpreter) -> Iterator[ast.AST]:
    """The parts of a condition, and of what the names in it are bound to in its function, that are numbers which all
    ranks know: no loss."""
    source = run.sources[test]
    names = {each.id for each in walk(test) if isinstance(each, ast.Name)}
    bound = (each for each in walk(source.home(test)) if isinstance(each, ast.Assign)) if names else ()
    made = (e.value for e in bound if any(isinstance(t, ast.Name) and t.id in names for t in e.targets))
    for each in (test, *made):
        if run.is_alike(each):
            yield from walk(each)


def draws_data(loaders: Iterable[Loader], run: Interpreter, common: Collection[ast.AST] = ()) -> bool:
    """Whether a loop that trains draws the data of a loader anew: ranks must have the same ones, to take their shares
    of them. Rank 0 draws for all what is ``common``."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    ranks = {event.node for event in draw_events(run) if "torch" in libraries_of(event, run)}.difference(common)
    again = {
        thing
        for event in run.of("draw")
        if event.node in ranks and any(loop.node in training for loop in event.loops)
        for thing in event.value.things
    }
    held = (value for each in loaders for value in _held(each.object.argument("dataset", 0) or NOTHING))
    return bool(again) and any(not again.isdisjoint(value.origins) for value in held)


def _held(value: Value, depth: int = 4) -> Iterator[Value]:
    """A value, and what the objects in it are made of and keep."""
    yield value
    for thing in value.things if depth else ():
        if isinstance(thing, Object):
            for each in (*thing.args, *thing.keywords.values(), *thing.attributes.values()):
                yield from _held(each, depth - 1)
        elif isinstance(thing, Items):
            for each in (*thing.parts, thing.element):
                yield from _held(each, depth - 1)


def _may_go_apart(event: Event, run: Interpreter) -> Iterator[tuple[Loop, bool]]:
    """The loops around a training step, from the outermost to one in which ranks may go apart: at its next round all
    that they must have in common is seeded again, or comes from rank 0, as a new model does when it is wrapped. With
    each comes whether nothing is seeded before it starts once more."""
    again = False
    for outer, inner in zip(event.loops, (*event.loops[1:], None), strict=True):
        yield outer, again
        if inner is None:
            return
        between = [e for e in in_loop(run, outer.node) if not is_in(inner, e)]
        drawn = [e for e in between if e.kind in DRAWS and not (e.inside_forward or is_dropout(e, run))]
        shared = [e for e in between if _is_in_common(e, outer, run) or e in drawn and not is_of_sampler(e)]
        again = not shared or shared[0].kind != "seed"
        if not again:
            continue
        if run.plan.bare:
            return
        trained = keys(part for module in optimized_modules(run) for part in parts(module))
        if any(e.kind != "optimizer" and not _makes_model(e, trained) for e in shared):
            return


def _makes_model(event: Event, trained: Keys) -> bool:
    """Whether parameters are drawn while a model is made that is trained: the others then have them from rank 0."""
    if event.kind != "draw_parameters" or not any(call.function.name == "__init__" for call in event.calls):
        return False
    drawn = keys(thing for thing in event.value.things if isinstance(thing, Object))
    return bool(drawn) and drawn <= trained


def _is_in_common(event: Event, loop: Loop, run: Interpreter) -> bool:
    """Whether ranks must have in common what happens in a loop, or beside it. Not an optimizer that each round makes
    anew for the model of the one before."""
    if event.kind != "optimizer" or not is_in(loop, event):
        return event.kind in SHARED or is_for_a_parameter(event, run)
    stepped = [module for thing in event.value.objects("optimizer") for module in optimized_by(thing)]
    trained = keys(part for module in stepped for part in parts(module))
    made = (e for kind in ("bind", "bind_part") for e in run.of(kind) if is_in(loop, e))
    return not trained or any(trained & keys(unwrapped(each.value)) for each in made)


def _start(outer: Loop, run: Interpreter) -> int:
    """When a loop begins."""
    begun = [e.order for e in run.of("iterate") if e.node is outer.node][:1]
    return min(begun + [e.order for e in in_loop(run, outer.node)[:1]])  # a `while` has no event of its own


def _alike_again(loop: Loop, outermost: Loop, run: Interpreter) -> int | None:
    """Until when ranks that go apart ahead of a loop may stay so: the script seeds them alike after it, or makes
    another model, which comes from rank 0. None if they must have something in common before; see `_may_go_apart` for
    what is drawn between the loop and the ``outermost`` one around it."""
    if isinstance(loop.node, ast.comprehension):
        return None
    start, last = _start(loop, run), in_loop(run, loop.node)[-1].order
    end = next((e.order for e in run.of("seed") if e.order > last), len(run.events))
    shared = [e for e in run.events if start < e.order < end and _is_in_common(e, loop, run)]
    if any(is_in(loop, e) for e in shared):
        return None
    outside = [e for e in shared if not is_in(outermost, e)]
    after = [e for e in run.events if last < e.order < end and not is_in(outermost, e)] if outside else []
    if outside and not (outside[0].order > last and _comes_from_rank_zero(after, run)):
        return None
    common = {each.order for each in outside}
    return min((e.order for e in after if e.order in common or e.value.objects("module")), default=end)


def _comes_from_rank_zero(events: list[Event], run: Interpreter) -> bool:
    """Whether all that is drawn for all ranks after a loop are the parameters of models that train, which the others
    have from rank 0."""
    trained = keys(part for module in optimized_modules(run) for part in parts(module))
    steps = {loop.node for event in run.of("backward") for loop in event.loops}
    made = {module.key for e in events if e.kind == "make" for module in e.value.objects("module")}
    drawn = (e for e in events if e.kind in DRAWS and steps.isdisjoint(loop.node for loop in e.loops))
    shared = (e for e in events if e.kind in SHARED and e.kind != "optimizer")
    return (
        not run.plan.bare
        and made <= trained
        and all(e.inside_forward or is_dropout(e, run) for e in drawn)
        and all(_makes_model(e, trained) for e in shared)
    )


def _draws_noise(
    loop: Loop, end: int, run: Interpreter, drops: bool, libraries: Iterable[str], common: Collection[ast.AST]
) -> bool:
    """Whether dropout or noise from a loop to an ``end`` should differ between ranks; ``drops`` if a model of a library
    drops out, or samples are augmented. ``libraries`` are those besides torch that draw nothing else. What is
    ``common`` to all of a batch need not differ."""
    start = _start(loop, run)
    varied = {"torch", "cuda", *libraries}
    drawn = [*run.of("random"), *(each for each in run.of("random_number") if is_for_one_row(each, run))]
    picking = {*picks_of_all(run), *common}
    early = [e for e in drawn if e.order < end and e.node not in picking and libraries_of(e, run) & varied]
    return drops or any(e.order > start or is_dropout(e, run) for e in early)


def picked_apart(
    run: Interpreter, apart: set[ast.AST], varied: frozenset[str], common: Collection[ast.AST]
) -> Iterator[Event]:
    """Where steps pick by such numbers in the loops in which ranks have gone ``apart``, and do not have them in
    ``common``."""
    picking = picks_of_all(run)
    for event in draw_events(run):
        if event.node in common or not event.grad:  # an evaluation that is only shown is rank 0's
            continue
        if event.node in picking and is_parted(event, apart) and libraries_of(event, run) & {"torch", "cuda", *varied}:
            yield picking[event.node]


def left_seeded(run: Interpreter) -> Iterator[tuple[Event, Draw]]:
    """What loops around steps draw for all ranks from a generator that the data set of a loader has seeded by the
    samples that each rank has read, and where it does so."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    first: dict[str, tuple[Event, Draw]] = {}
    for event in run.of("iterate"):
        for loader in drawn_from(event.value):
            for seed in run.runs.draws.seeding(loader.node) if run.shares_out(loader) else ():
                first.setdefault(seed.library, (event, seed))
    for event in draw_events(run) if first else ():
        own = isinstance(event.node, ast.expr) and not run.is_alike(event.node)
        if own or event.inside_forward or is_per_sample(event, run) or is_of_sampler(event) or is_dropout(event, run):
            continue
        for iterated, seed in (first[each] for each in libraries_of(event, run) if each in first):
            shared = {loop.node for loop in event.loops} & {loop.node for loop in iterated.loops} & training
            if shared or event.order > iterated.order and any(loop.node in training for loop in event.loops):
                yield event, seed


def _has_run(first: Event, second: Event) -> bool:
    """Whether the outermost loop around a training step has begun where another step comes: it is no alternative, and
    does not stand under a condition that says nothing of the other."""
    loop = first.loops[0]
    if loop.node is second.loops[0].node:
        return True
    if _is_alternative(first, second):
        return False
    ways = [[(c.source, c.node) for c in e.calls if c.node is not None] for e in (first, second)]
    way = [each for each in ways[0] if loop.node not in each[0].ancestors(each[1])]
    around = {each for source, node in [*ways[1], (second.source, second.node)] for each in source.ancestors(node)}
    asked = (each for source, node in [*way, (loop.source, loop.node)] for each in source.ancestors(node))
    return not any(isinstance(each, (ast.If, ast.ExceptHandler)) and each not in around for each in asked)


def _is_alternative(first: Event, second: Event) -> bool:
    """Whether only one of two things happens: the branches of a condition lead there, or methods of one name."""
    chains = [[*((c.node, c.source, c.function) for c in e.calls), (e.node, e.source, None)] for e in (first, second)]
    for one, other in zip(*chains, strict=False):
        if one[0] is not other[0]:
            same = one[0] is not None and other[0] is not None and one[1] is other[1]
            return same and regions.exclusive(one[1], one[0], other[0])
        if one[2] is not None and other[2] is not None and one[2].node is not other[2].node:
            return True
    return False
