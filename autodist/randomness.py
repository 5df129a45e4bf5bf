"""Random numbers: what seeds and draws them, where ranks must draw alike, and where they should not."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from autodist import augmentation, escapes, regions, seeding
from autodist.escapes.rows import sized_like
from autodist.interpreter import Event, Interpreter, Loop
from autodist.models import Keys, is_main_guard, keys, optimized_by, optimized_modules, parts, unused, unwrapped
from autodist.script import Apart, Loader, Model, Site, WholeNoise
from autodist.source import Source, argument, last_name
from autodist.spread import COUNT, ROWS
from autodist.tensors import operations
from autodist.values import (
    NOTHING,
    Draw,
    External,
    Items,
    Object,
    Parameters,
    Table,
    Value,
    drawn_by_evaluation,
    drawn_from,
    is_clock,
)

DROPPING = ("alexnet", "vgg", "googlenet", "inception", "mobilenet", "efficientnet", "mnasnet", "convnext", "swin")
"""How names begin of those models of torchvision that have dropout or skip layers at random unless told otherwise."""

DROPOUT = ("ropout", "Transformer", "RReLU", "rrelu")
"""What is in the names of torch's layers and functions that draw for each number of a sample."""
DRAWS_LIKE = frozenset(["rand_like", "randn_like", "randint_like"])
"""What draws for each number of a tensor that it is given."""
SHARED = ("seed", "random_split", "optimizer", "draw_parameters")
"""What ranks must do alike. An optimizer comes with a new model."""
DRAWS = ("random", "random_number", "numpy_draw")
"""Kinds of events: arrays, single numbers, and what libraries draw from NumPy's own generator."""
DRAWING = {
    "torch.utils.data.WeightedRandomSampler": 3,
    "torch.utils.data.RandomSampler": 3,
    "torch.utils.data.SubsetRandomSampler": 1,
}
"""Samplers that draw, with the position of their generator."""


def _draws(run: Interpreter) -> list[Event]:
    """Where numbers are drawn from a generator that the script does not pass on."""
    return [event for kind in DRAWS for event in run.of(kind)]


def drawn(run: Interpreter) -> Iterator[str]:
    """The libraries that numbers are drawn from."""
    for event in _draws(run):
        yield from libraries_of(event, run)


def seeded(run: Interpreter) -> Iterator[str]:
    """Libraries that the script seeds in any case before it draws from them (a seed drawn at random is none)."""
    first: dict[str, int] = {}
    for event in _draws(run):
        for library in libraries_of(event, run):
            first[library] = min(event.order, first.get(library, event.order))
    mended = [e for e in run.of("unseeded") if not [*e.value.objects("generator")] and not e.loops and not reseeds(e)]
    seeds = [(event, library) for event in [*run.of("seed"), *mended] for library in libraries_of(event, run)]
    for event, library in seeds:
        others = [other for other, same in seeds if same == library]
        if event.order < first.get(library, event.order + 1) and seeding.is_certain(event, others, run):
            yield library


def reseeds(event: Event) -> bool:
    """Whether a sampler says `np.random.seed()`, a statement without which the generator goes on as it was seeded."""
    node = event.node
    if not is_of_sampler(event):
        return False
    bare = isinstance(node, ast.Call) and not node.args and not node.keywords
    return bare and isinstance(event.source.parents.get(node), ast.Expr) and not [*event.value.objects("generator")]


def seeds_of(event: Event) -> tuple[list[Site], list[Site]]:
    """What to replace where ranks would be seeded apart: the call, or what it takes where no seed is given: the default
    of an option, `args.seed or time.time()`, `if seed is None: seed = time.time()`."""
    standing = []
    for origin in sorted((o for o in event.value.origins if isinstance(o, Object) and is_clock(o)), key=_place):
        around = (origin.node, *origin.source.ancestors(origin.node))
        found = next((n for n in around if isinstance(n, ast.expr) and _stands_in(origin.source, n)), None)
        if found is None:
            return [Site(event.source, event.node)], []
        standing.append(Site(origin.source, found))
    return ([], standing) if standing else ([Site(event.source, event.node)], [])


def _place(made: Object) -> tuple[str, int, int]:
    return str(made.source.path), made.node.lineno, made.node.col_offset


def _stands_in(source: Source, node: ast.expr) -> bool:
    """Whether an expression is what is taken where nothing is given."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "default"
    if isinstance(parent, ast.Assign):
        around = source.parents.get(parent)
        return isinstance(around, ast.If) and parent in around.body and not is_main_guard(around)
    others = parent.values[1:] if isinstance(parent, ast.BoolOp) else ()
    return node in others or isinstance(parent, ast.IfExp) and node is not parent.test


def is_per_sample(event: Event) -> bool:
    """Whether something happens while one sample is read, or a worker starts: ranks may differ there."""
    names = {getattr(call.function.node, "name", "") for call in event.calls}
    return any(name in ("__getitem__", "__iter__", "__call__") or "worker" in name for name in names)


def libraries_of(event: Event, run: Interpreter) -> set[str]:
    """The libraries whose generator a call seeds or draws from."""
    if event.kind == "numpy_draw":
        return {"numpy"}
    if not isinstance(event.node, ast.Call):
        return {"torch"}
    names = {t.name for t in run.values.get(event.node.func, NOTHING).things if isinstance(t, External)}
    return {"cuda" if name.startswith("torch.cuda") else name.partition(".")[0] for name in names} or {"torch"}


def diverge(
    run: Interpreter,
    loaders: list[Loader],
    draws: frozenset[object],
    models: list[Model],
    varied: frozenset[str],
    common: Collection[ast.AST] = (),
) -> tuple[Apart, ...]:
    """The outermost training loop, or one of each alternative, if dropout or noise in it should differ by rank.
    ``varied`` are the libraries besides torch that draw nothing else, see `noise`; what is drawn in ``common`` comes
    from rank 0."""
    if draws and not _drawn_beside_torch(draws, run):
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
    used = {e: {t.key for t in e.value.models if isinstance(t, Object)} for e in backwards}
    alike = {event.loops[0].node for event, keys in used.items() if not bypassed.isdisjoint(keys)}
    augmented = any(each.library in {"torch", *varied} for each in _augmenting(loaders, run))
    drops = _drop_inside(models) or augmented or bool(_augmenting_workers(loaders, run))
    found: list[tuple[Event, Loop]] = []
    repeated: set[ast.AST] = set()
    end = -1
    for event in backwards:
        outer, start = event.loops[0], _start(event.loops[0], run)
        if outer.node in alike or start < end and not all(_is_alternative(event, other) for other, _ in found):
            continue  # the ranks have gone apart already
        for loop, again in _may_go_apart(event, run):
            end_here = _seeded_again(loop, _start(loop, run), run)
            if _draws_noise(loop, outer, end_here, run, drops, varied, common):
                found.append((event, loop))
                repeated |= {loop.node} if again else set()
                end = max(end, end_here)
                break
    return tuple(Apart(loop.source, loop.node, loop.node in repeated) for _, loop in found)


def sees_all(run: Interpreter) -> bool:
    """Whether a model is given all of the data on every rank, as a graph, and a rank learns from a part of what it
    gives: what it drops, it drops on all of them."""
    if not run.plan.wholes and not run.plan.batches:
        return False
    graded = (event for event in run.of("forward") if event.grad and not event.inside_forward)
    steps = [event for event in graded if not run.step_loops.isdisjoint(loop.node for loop in event.loops)]
    return bool(steps) and not any(event.detail.spread.is_local for event in steps)


def _runs_by_chance(module: Object, run: Interpreter) -> bool:
    """Whether what a rank draws, or has for samples, says which parts of a module run; not what a step always asks for,
    as by `model(x, return_latents=True)`."""
    drawn = {event.node for event in _draws(run)}
    return any(
        unused.chooses_parts(part, run)
        or any(_goes_by_chance(each.test, drawn, run) for each in unused.branches(part, run))
        for part in parts(module)
    )


def _goes_by_chance(test: ast.expr, drawn: set[ast.AST], run: Interpreter) -> bool:
    """Whether a condition is computed from what was drawn, or from a rank's samples and not only their number."""
    made = {*ast.walk(test), *escapes.roots(test, run, set())}
    values = (run.values.get(each, NOTHING) for each in made if isinstance(each, ast.expr))
    return not made.isdisjoint(drawn) or any(each.spread.is_local and each.spread is not COUNT for each in values)


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
        return decides(run, common) or _has_masks(models, run) or _adds_noise(run, for_all)
    return drops(models, run) or not draws and any(event.inside_forward for event in run.of("random"))


def decides(run: Interpreter, common: Collection[ast.AST] = ()) -> bool:
    """Whether a number that torch draws says whether, or how often, a model runs or learns in a step: `if torch.rand(1)
    < 0.1: continue`. The ranks must agree on it, or some of them wait for what others do not come to; on what is drawn
    in ``common`` they do."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    drawn = {
        event.node
        for event in _draws(run)
        if not event.inside_forward and not is_per_sample(event) and "torch" in libraries_of(event, run)
        if event.node not in common
        if any(loop.node in training for loop in event.loops)
    }
    meeting = [event for kind in ("forward", "backward", "step") for event in run.of(kind)] if drawn else []
    met = {event.node for event in meeting}
    tests = [e.node for e in run.of("test") if not e.inside_forward] if drawn else []
    tests += [loop.node.iter for event in meeting for loop in event.loops if isinstance(loop.node, ast.For)]
    return any(
        _parts_ways(run.sources[each].parents.get(each), met) and not drawn.isdisjoint(_said(each, run))
        for each in tests
        if isinstance(each, ast.expr) and each in run.sources
    )


def _parts_ways(statement: ast.AST | None, met: set[ast.AST]) -> bool:
    """Whether what runs below a condition or loop has to be run by all ranks, or leads around such things."""
    if not isinstance(statement, (ast.If, ast.While, ast.For)):
        return False
    leaving = (ast.Continue, ast.Break, ast.Return, ast.Raise)
    inside = [node for block in (*statement.body, *statement.orelse) for node in ast.walk(block)]
    return any(node in met or isinstance(node, leaving) for node in inside)


def _said(test: ast.expr, run: Interpreter) -> Iterator[ast.AST]:
    """The parts of a condition, and of what the names in it are bound to in its function, that are numbers which all
    ranks know: no loss."""
    source = run.sources[test]
    names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
    bound = (each for each in ast.walk(source.home(test)) if isinstance(each, ast.Assign)) if names else ()
    made = (e.value for e in bound if any(isinstance(t, ast.Name) and t.id in names for t in e.targets))
    for each in (test, *made):
        if not run.values.get(each, NOTHING).spread.is_local:
            yield from ast.walk(each)


def draws_data(loaders: Iterable[Loader], run: Interpreter, common: Collection[ast.AST] = ()) -> bool:
    """Whether a loop that trains draws the data of a loader anew: ranks must have the same ones, to take their shares
    of them. Rank 0 draws for all what is ``common``."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    ranks = {event.node for event in _draws(run) if "torch" in libraries_of(event, run)}.difference(common)
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
        between = [e for e in run.events if _is_in(outer, e) and not _is_in(inner, e)]
        drawn = [e for e in between if e.kind in DRAWS and not (e.inside_forward or _is_dropout(e, run))]
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


def _is_in(loop: Loop, event: Event) -> bool:
    return any(each.node is loop.node for each in event.loops)


def _is_in_common(event: Event, loop: Loop, run: Interpreter) -> bool:
    """Whether ranks must have in common what happens in a loop, or beside it. Not an optimizer that each round makes
    anew for the model of the one before."""
    if event.kind != "optimizer" or not _is_in(loop, event):
        return event.kind in SHARED or _is_for_a_parameter(event, run)
    stepped = [module for thing in event.value.objects("optimizer") for module in optimized_by(thing)]
    trained = keys(part for module in stepped for part in parts(module))
    made = (e for kind in ("bind", "bind_part") for e in run.of(kind) if _is_in(loop, e))
    return not trained or any(trained & keys(unwrapped(each.value)) for each in made)


def _is_for_a_parameter(event: Event, run: Interpreter) -> bool:
    """Whether noise has the shape of a parameter or its gradient, to which it is added: `torch.randn(p.shape)`."""
    if event.kind not in DRAWS or event.inside_forward:
        return False
    asked = (n for n in ast.walk(event.node) if isinstance(n, ast.Attribute) and n.attr in ("shape", "size"))
    return any(isinstance(t, Parameters) for n in asked for t in run.values.get(n.value, NOTHING).things)


def _adds_noise(run: Interpreter, for_all: Collection[ast.AST]) -> bool:
    """Whether steps draw noise for the samples of a rank alone: `x + torch.randn(x.shape)`"""
    steps = (e for e in run.of("random") if any(loop.node in run.step_loops for loop in e.loops))
    drawn = {event.node for event in steps if isinstance(event.node, ast.expr) and not is_per_sample(event)}
    return any(run.values.get(node, NOTHING).spread is ROWS for node in drawn if node not in for_all)


def is_of_sampler(event: Event) -> bool:
    """Whether a sampler draws the order of the samples."""
    owners = [call.function.owner for call in event.calls]
    return any(isinstance(owner, Object) and owner.roles & {"sampler", "batch_sampler"} for owner in owners)


def with_shared_order(loader: Loader, run: Interpreter, models: list[Model]) -> Loader:
    """The loader, with what its sampler draws from, if steps and samples draw from that as well.

    Each rank draws as much as its own samples ask for, so that the ranks' generators go apart: then one rank should
    draw the order for all of them.
    """
    samplers = _samplers_of(loader.object)
    ordering = [e for e in _draws(run) if any(call.function.owner in samplers for call in e.calls)]
    libraries = {library for event in ordering for library in libraries_of(event, run)}
    unseeded = [sampler for sampler in samplers if _draws_globally(sampler)]
    if unseeded and any(epoch.loader is None for epoch in loader.epochs):  # made anew for each epoch, a seeded one
        libraries.add("torch")  # would draw the same
        unseeded = []
    training = {e.loops[0].node for e in run.of("backward") if e.loops}
    beside = {"torch"} if drops(models, run) else set()
    for event in _draws(run):
        if not is_of_sampler(event) and (is_per_sample(event) or event.loops and event.loops[0].node in training):
            beside |= libraries_of(event, run)
    beside |= {each.library for each in augmentation.collating(loader.object, run)}
    beside |= {each.library for each in augmentation.per_sample(loader.object, run)}
    beside |= augmentation.seeded_again(loader.object, run)
    return replace(
        loader,
        drawn_apart=frozenset(libraries & beside),
        endless=any(map(_goes_on, {*_iterating(samplers), *_inside(ordering, samplers)})),
        unseeded_samplers=tuple(unseeded),
    )


def unseeded_samplers(loader: Object) -> list[Object]:
    """Torch's samplers that a loader has been given and that draw from the global generator."""
    return [sampler for sampler in _samplers_of(loader) if _draws_globally(sampler)]


def parted_orders(run: Interpreter) -> Iterator[tuple[Event, str]]:
    """Where the order of hand-made batches is drawn from a generator that rows of a batch are drawn for as well, again
    and again until a number fits; and the code that draws so."""
    if not run.plan.draws:
        return
    orders = [e for e in _draws(run) if e.loops and isinstance(e.node, ast.Call) and _names_order(e.node)]
    for event in _draws(run):
        tries = [loop.node for loop in event.loops if isinstance(loop.node, ast.While)]
        rows = [
            loop
            for loop in event.loops
            if loop.through is not None and run.values.get(loop.through.iter, NOTHING).spread is ROWS
        ]
        if not tries or not rows or event.loops.index(rows[0]) > [e.node for e in event.loops].index(tries[-1]):
            continue
        name = event.function.name if event.function is not None else "the step"
        for order in orders:
            if libraries_of(order, run) & libraries_of(event, run) and order.loops[0].node is event.loops[0].node:
                yield order, name


def _names_order(call: ast.Call) -> bool:
    return last_name(call.func) in ("permutation", "randperm", "shuffle", "sample")


def _samplers_of(loader: Object) -> list[Object]:
    given = (loader.argument("sampler", 3), loader.argument("batch_sampler", 4))
    return [sampler for value in given for sampler in _samplers(value or NOTHING)]


def _samplers(value: Value) -> Iterator[Object]:
    """The samplers in a value, and those that they are made of."""
    for thing in value.things:
        if isinstance(thing, Object) and thing.roles & {"sampler", "batch_sampler"}:
            yield thing
            for inner in (*thing.args, *thing.keywords.values()):
                yield from _samplers(inner)


def _draws_globally(sampler: Object) -> bool:
    """Whether it is one of torch's that draw, without a generator of its own."""
    name = sampler.name.replace("torch.utils.data.sampler.", "torch.utils.data.")
    return name in DRAWING and sampler.argument("generator", DRAWING[name]) is None


def _iterating(samplers: list[Object]) -> Iterator[ast.AST]:
    """The methods by which samplers of the script's own are walked over."""
    for sampler in samplers:
        yield from (each.node for each in sampler.functions("__iter__"))


def _inside(ordering: list[Event], samplers: list[Object]) -> Iterator[ast.AST]:
    """The functions in which samplers draw: `__iter__` may hand out what another one yields."""
    for event in ordering:
        first = next(at for at, call in enumerate(event.calls) if call.function.owner in samplers)
        yield from (call.function.node for call in event.calls[first:])


def _goes_on(function: ast.AST) -> bool:
    """Whether it yields for as long as it is asked."""
    loops = [n for n in ast.walk(function) if isinstance(n, ast.While)]
    endless = [loop for loop in loops if isinstance(loop.test, ast.Constant) and loop.test.value]
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for loop in endless for node in ast.walk(loop))


def drops(models: list[Model], run: Interpreter) -> bool:
    """Whether numbers are dropped out, by layers of the script or of a library."""
    return _drop_inside(models) or any(_is_dropout(event, run) for event in run.of("random"))


def _drop_inside(models: list[Model]) -> bool:
    """Whether one of the models drops numbers out by layers of a library, where no call of the script shows it."""
    held = [part for model in models for part in parts(model.object)]
    held += [t for part in held for value in part.attributes.values() for t in value.things if isinstance(t, Object)]
    return any(map(_drops_inside, held))


def _drops_inside(module: Object) -> bool:
    """Whether a module of a library drops numbers out by layers of its own, as it is made here."""
    if module.cls is not None:
        return False
    library, _, name = module.name.rpartition(".")
    if library.startswith("torchvision.models"):
        return name.startswith(DROPPING)
    if module.name.startswith("transformers."):
        return "Model" in module.name or "For" in module.name  # and no tokenizer
    rates = [value for key, value in module.keywords.items() if key.startswith("drop") or key.endswith("_drop")]
    rates += module.args[2:3] if name == "MultiheadAttention" else []
    return library.startswith(("torch.nn", "timm", "torch_geometric.nn")) and any(
        rate.const not in (0, None, False) for rate in rates
    )


def _drawn_beside_torch(draws: frozenset[object], run: Interpreter) -> bool:
    """Whether the indices that ranks must have in common all come from another generator than dropout and noise."""
    libraries: dict[int, set[str]] = {}
    for event in _draws(run):
        for node in (event.node, *event.source.ancestors(event.node)):
            if id(node) in draws:
                libraries.setdefault(id(node), set()).update(libraries_of(event, run))
    if len(libraries) < len(draws):  # some draw nothing, as `data[i : i + batch_size]` unless its order is drawn
        if any(ordering(run)):
            return False
    return not any("torch" in each for each in libraries.values())


def ordering(run: Interpreter) -> Iterator[Event]:
    """What loops draw from torch that may be the order of their samples."""
    for event in _draws(run):
        if event.loops and not _is_dropout(event, run) and not event.inside_forward and not _fills(event):
            if "torch" in libraries_of(event, run) and not _is_empty(event):
                yield event


def _is_empty(event: Event) -> bool:
    """`torch.empty_like(order)`, whose numbers nobody reads."""
    return isinstance(event.node, ast.Call) and (last_name(event.node.func) or "").startswith("empty")


def _fills(event: Event) -> bool:
    """`conv.weight.data.normal_(0, 0.01)`, which may stand in a loop over layers, and gives no order of samples."""
    called = event.node.func if isinstance(event.node, ast.Call) else None
    filling = isinstance(called, ast.Attribute) and called.attr.endswith("_") and called.attr != "random_"
    return filling and isinstance(event.source.parents.get(event.node), ast.Expr)


def _start(outer: Loop, run: Interpreter) -> int:
    """When a loop begins."""
    return next(  # a `while` has no event of its own
        e.order for e in run.events if e.kind == "iterate" and e.node is outer.node or _is_in(outer, e)
    )


def _seeded_again(outer: Loop, start: int, run: Interpreter) -> int:
    """When the script next seeds all ranks alike, after a loop."""
    last = max(e.order for e in run.events if _is_in(outer, e))
    return next((e.order for e in run.of("seed") if e.order > last), len(run.events))


def _draws_noise(
    loop: Loop,
    outermost: Loop,
    end: int,
    run: Interpreter,
    drops: bool,
    libraries: Iterable[str],
    common: Collection[ast.AST],
) -> bool:
    """Whether dropout or noise in a loop should differ between ranks; ``drops`` if a model of a library drops out, or
    samples are augmented. ``libraries`` are those besides torch that draw nothing else. Up to ``end`` nothing else may
    be drawn that they must have in common; see `_may_go_apart` for what is drawn between the loop and the ``outermost``
    one around it. What is ``common`` to all of a batch need not differ."""
    if isinstance(loop.node, ast.comprehension):
        return False
    start = _start(loop, run)
    later = (e for e in run.events if start < e.order < end and _is_in_common(e, loop, run))
    if any(_is_in(loop, e) or not _is_in(outermost, e) for e in later):
        return False
    varied = {"torch", "cuda", *libraries}
    drawn = [*run.of("random"), *filter(_is_for_one_row, run.of("random_number"))]
    picking = {*picks_of_all(run), *common}
    early = [e for e in drawn if e.order < end and e.node not in picking and libraries_of(e, run) & varied]
    return drops or any(e.order > start or _is_dropout(e, run) for e in early)


def picks_of_all(run: Interpreter) -> dict[ast.AST, Event]:
    """What steps draw to pick from something that all ranks have alike, by numbers that do not go by those of a rank's
    samples: `memory[torch.randperm(len(memory))[:8]]`. With each comes where that picks."""
    return {
        node: event
        for event in reversed(run.of("picks"))
        if event.loops and not event.inside_forward
        for thing in event.value.things
        if isinstance(thing, Draw)
        for node in ast.walk(thing.node)
        if isinstance(node, ast.Call) and not run.values.get(node, NOTHING).spread.is_local
    }


def picked_apart(
    run: Interpreter, apart: set[ast.AST], varied: frozenset[str], common: Collection[ast.AST]
) -> Iterator[Event]:
    """Where steps pick by such numbers in the loops in which ranks have gone ``apart``, and do not have them in
    ``common``."""
    picking = picks_of_all(run)
    for event in _draws(run):
        if event.node in common or not event.grad:  # an evaluation that is only shown is rank 0's
            continue
        if event.node in picking and _is_parted(event, apart) and libraries_of(event, run) & {"torch", "cuda", *varied}:
            yield picking[event.node]


def left_seeded(run: Interpreter) -> Iterator[tuple[Event, augmentation.Drawn]]:
    """What loops around steps draw for all ranks from a generator that the data set of a loader has seeded by the
    samples that each rank has read, and where it does so."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    first: dict[str, tuple[Event, augmentation.Drawn]] = {}
    for event in run.of("iterate"):
        for loader in drawn_from(event.value):
            for seed in augmentation.seeding(loader, run) if run.shares_out(loader) else ():
                first.setdefault(seed.library, (event, seed))
    for event in _draws(run) if first else ():
        own = isinstance(event.node, ast.expr) and run.values.get(event.node, NOTHING).spread.is_local
        if own or event.inside_forward or is_per_sample(event) or is_of_sampler(event) or _is_dropout(event, run):
            continue
        for iterated, seed in (first[each] for each in libraries_of(event, run) if each in first):
            shared = {loop.node for loop in event.loops} & {loop.node for loop in iterated.loops} & training
            if shared or event.order > iterated.order and any(loop.node in training for loop in event.loops):
                yield event, seed


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


def decided_by_noise(run: Interpreter) -> list[Event]:
    """Where an evaluation's noise decides, as in `if validation_loss < best` of a VAE: ranks must agree on it."""
    asked = [event for kind in ("test", "schedule") for event in run.of(kind) if not event.inside_forward]
    return [event for event in asked if is_noise_of_evaluation(event.value)]


def is_noise_of_evaluation(value: Value) -> bool:
    """Whether something is computed from what an evaluation has drawn."""
    return bool(drawn_by_evaluation([value]))


def _augmenting(loaders: Iterable[Loader], run: Interpreter) -> list[augmentation.Drawn]:
    """What a rank itself draws for the samples that it reads, from generators that all of them seed alike."""
    alike = {"torch", *seeded(run), *drawn(run)}
    found = (each for loader in loaders for each in augmentation.per_sample(loader.object, run))
    return [each for each in found if each.library in alike]


def _augmenting_workers(loaders: Iterable[Loader], run: Interpreter) -> list[augmentation.Drawn]:
    """What workers draw, whom torch seeds from the generator of their rank."""
    return [each for loader in loaders for each in augmentation.by_workers(loader.object, run)]


def augmented_alike(loaders: Iterable[Loader], run: Interpreter, varied: frozenset[str]) -> list[augmentation.Drawn]:
    """What is drawn for the samples that ranks read, of generators that stay alike on all ranks: those of other
    libraries than the ``varied`` ones. Workers draw as torch has seeded them."""
    itself = [each for each in _augmenting(loaders, run) if each.library not in varied]
    return [*itself, *([] if "torch" in varied else _augmenting_workers(loaders, run))]


def noise(run: Interpreter, shared: frozenset[ast.AST], loaders: Iterable[Loader]) -> Iterator[str]:
    """Libraries besides torch whose draws in training steps are all arrays of noise, or numbers for one sample after
    the other, never a decision nor a batch that is ``shared`` out, and which draw no order of the samples. What an
    evaluation between steps seeds, on all ranks alike, is none of them."""
    steps = run.step_loops
    outer = {event.loops[0].node for event in run.of("backward") if event.loops}
    deciding = {
        library
        for event in run.of("random_number")
        if event.loops and event.loops[0].node in outer and not _is_for_one_row(event) and not is_per_sample(event)
        for library in libraries_of(event, run)
    }
    deciding |= _seeded_between(run, {loader.object for loader in loaders}, outer)
    own = {e.library for e in _augmenting(loaders, run)} - {"torch"} - deciding
    ordering = {library for loader in loaders for library in loader.drawn_apart}
    drawn: dict[str, bool] = dict.fromkeys(own - ordering, True)
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        if not isinstance(event.node, ast.expr) or is_per_sample(event):
            continue
        inside = any(loop.node in steps for loop in event.loops)
        if not inside and not (event.loops and event.loops[0].node in outer and _names_order_of(event)):
            continue
        sized = event.kind == "random" and (run.values.get(event.node, NOTHING).spread is ROWS or _is_noise(event.node))
        sized = sized or _is_for_one_row(event)
        if event.kind == "random_number" and not (sized and deciding.isdisjoint(libraries_of(event, run))):
            continue
        sized = sized and shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        sized = sized and not _is_for_a_parameter(event, run)
        for library in libraries_of(event, run) - {"torch", "cuda"}:
            drawn[library] = drawn.get(library, True) and sized
    yield from (library for library, sized in drawn.items() if sized)


def _seeded_between(run: Interpreter, training: Collection[Object], outer: Collection[ast.AST]) -> set[str]:
    """The libraries that data sets of other loaders than the ``training`` ones seed for each sample, in the ``outer``
    loops of the training: `if self.partition != "train": np.random.seed(item)`."""
    return {
        library
        for event in run.of("iterate")
        if event.loops and event.loops[0].node in outer
        for loader in drawn_from(event.value)
        if loader not in training
        for library in augmentation.seeded_again(loader, run)
    }


def _names_order_of(event: Event) -> bool:
    return isinstance(event.node, ast.Call) and _names_order(event.node)


def _is_for_one_row(event: Event) -> bool:
    """Whether something is drawn anew for each of a rank's samples."""
    return any(loop.by_row for loop in event.loops)


def drawn_alike(run: Interpreter, varied: frozenset[str], shared: frozenset[ast.AST]) -> Iterator[Event]:
    """Where numbers are drawn for a rank's samples, by one call or for one after the other, from generators that are
    alike on all ranks: those of libraries other than the ``varied`` ones. What is ``shared`` out is drawn for all of
    them, and beside a loader arrays of torch go with the masks of dropout, see `diverge`, unless each step is seeded.
    """
    steps = run.step_loops
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        inside = any(loop.node in steps for loop in event.loops) and not event.inside_forward
        drawn = run.values.get(event.node, NOTHING) if isinstance(event.node, ast.expr) else NOTHING
        seeded_there = any(_is_in(loop, each) for each in run.of("seed") for loop in event.loops[-1:])
        alone = not run.plan.draws and not seeded_there and not libraries_of(event, run).isdisjoint({"torch", "cuda"})
        sized = drawn.spread is ROWS and not alone and not _is_dropout(event, run) or _is_for_one_row(event)
        dealt = not shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        if inside and sized and not dealt and not is_per_sample(event) and not libraries_of(event, run) <= varied:
            yield event


def noise_of_own(run: Interpreter) -> Iterator[Event]:
    """Where steps draw for a rank's samples from a generator of the script's own, which begins alike on all ranks."""
    steps = run.step_loops
    for event in run.of("own_noise"):
        if any(loop.node in steps for loop in event.loops) and not is_per_sample(event):
            yield event


def drawn_for_all(
    run: Interpreter, apart: Iterable[Site], shared: frozenset[ast.AST], whole: Collection[ast.AST]
) -> Iterator[WholeNoise]:
    """Where noise is drawn for as many samples as a rank has, from a generator that is alike on all ranks, so that it
    can be drawn for those of all ranks. The ``whole`` sizes are those of batches."""
    loops = {each.node for each in apart}
    drawn: dict[ast.AST, list[Event]] = {}
    for event in run.of("noise_drawn"):
        drawn.setdefault(event.node, []).append(event)
    own = {event.node for event in run.of("own_noise")}
    for node, events in drawn.items():
        if any(e.value.spread is not ROWS or e.on_one_rank or is_per_sample(e) or _is_for_one_row(e) for e in events):
            continue
        if not isinstance(node, ast.Call) or not shared.isdisjoint((node, *events[0].source.ancestors(node))):
            continue
        alike = all(_is_seeded_alike(e, loops, run) or not loops and "torch" in libraries_of(e, run) for e in events)
        if (node in own or alike) and not any(_is_dropout(e, run) for e in events):
            drawn_there = _whole_noise(node, events[0], run)
            if drawn_there is not None:
                counts = drawn_there.counts
                yield replace(
                    drawn_there,
                    counts=tuple(each for each in counts if each not in whole),
                    divided=tuple(each for each in counts if each in whole),
                )


def _whole_noise(node: ast.Call, event: Event, run: Interpreter) -> WholeNoise | None:
    """How a draw is told the number of a rank's samples."""
    name, source = str(event.detail.const), event.source
    if name.rpartition(".")[2] in DRAWS_LIKE:
        like = node.args[0] if node.args else None
        return WholeNoise(source, node, node, like=like) if like is not None and _has_rows(like, run) else None
    if _names_order(node) and not name.startswith("torch.distributions."):
        return None  # of a rank's own rows, which those of others are not among
    size = operations.drawn(name, node)
    if size is None and node.args and isinstance(node.args[0], ast.Starred):
        size = node.args[0].value
    shaped = sized_like(size) if size is not None else None
    if shaped is not None:
        return WholeNoise(source, node, node, shape=size) if _has_rows(shaped, run) else None
    if size is None or run.values.get(size, NOTHING).spread is not COUNT:
        return None
    method = source.parents.get(node)  # several for each sample: `multinomial(weights, len(x) * 5).view(len(x), 5)`
    view = source.parents.get(method) if method is not None else None
    if isinstance(method, ast.Attribute) and method.attr in ("view", "reshape") and isinstance(view, ast.Call):
        first = view.args[0] if view.args else None
        if first is not None and run.values.get(first, NOTHING).spread is COUNT:
            return WholeNoise(source, node, view, (size, first))
    return WholeNoise(source, node, node, (size,))


def _has_rows(node: ast.expr, run: Interpreter) -> bool:
    """Whether a tensor has a row for each of a rank's samples: not `x[0]`, which may be one of them."""
    value = run.values.get(node, NOTHING)
    return value.spread is ROWS and not any(
        _may_be_one(each, run) for each in (node, *(made for _, made in value.made))
    )


def _may_be_one(node: ast.expr, run: Interpreter) -> bool:
    """Whether something is picked by its number, and not out of several tensors that are known as such."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, (ast.Constant, ast.UnaryOp)):
        return False
    return not any(isinstance(thing, (Items, Table)) for thing in run.values.get(node.value, NOTHING).things)


def _is_seeded_alike(event: Event, apart: set[ast.AST], run: Interpreter) -> bool:
    """Whether ranks have just been seeded alike where they draw from torch, between the loops in which they go apart:
    `torch.manual_seed(0)` ahead of a preview in each epoch."""
    if "torch" not in libraries_of(event, run) or event.inside_forward or _is_parted(event, apart):
        return False
    seeds = [e for e in run.of("seed") if e.order < event.order and "torch" in libraries_of(e, run)]
    around = {loop.node for loop in event.loops}
    within = [e for e in seeds if around <= {loop.node for loop in e.loops}]
    parted = [e.order for e in run.events if e.order < event.order and _is_parted(e, apart)] if within else []
    return bool(within) and max(parted, default=-1) < within[-1].order


def _is_parted(event: Event, apart: set[ast.AST]) -> bool:
    return any(loop.node in apart for loop in event.loops)


def _is_noise(node: ast.expr) -> bool:
    """`np.random.normal(0, 1, size)`: an array, not a number to decide by."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    least = {"normal": 2, "uniform": 2, "randn": 0, "rand": 0, "standard_normal": 0, "random": 0}.get(node.func.attr)
    return least is not None and (len(node.args) > least or argument(node, "size") is not None)


def _is_dropout(event: Event, run: Interpreter) -> bool:
    return _is_call_of(event, run, (*DROPOUT, "transforms"))


def _has_masks(models: list[Model], run: Interpreter) -> bool:
    """Whether a model drops numbers out; what transforms draw for samples is told of as augmentation."""
    masking = (_is_call_of(event, run, DROPOUT) for event in run.of("random"))
    return _drop_inside(models) or any(masking)


def _is_call_of(event: Event, run: Interpreter, words: tuple[str, ...]) -> bool:
    """Whether what is called has one of some words in the name by which its library knows it."""
    if not isinstance(event.node, ast.Call):
        return False
    called = run.values.get(event.node.func, NOTHING).things
    return any(word in thing.name for thing in called if isinstance(thing, External) for word in words)
