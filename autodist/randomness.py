"""Random numbers: what seeds and draws them, where ranks must draw alike, and where they should not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist import regions
from autodist.interpreter import Event, Interpreter, Loop
from autodist.models import keys, optimized_by, parts, unused, unwrapped
from autodist.script import Loader, Model, Site
from autodist.source import argument, last_name
from autodist.spread import ROWS
from autodist.tensors import collation
from autodist.values import NOTHING, Draw, External, Function, Object, Value, is_clock

DROPPING = ("alexnet", "vgg", "googlenet", "inception", "mobilenet", "efficientnet", "mnasnet", "convnext", "swin")
"""How names begin of those models of torchvision that have dropout or skip layers at random unless told otherwise."""

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
        yield from _libraries(event, run)


def seeded(run: Interpreter) -> Iterator[str]:
    """Libraries that the script seeds before it draws from them (a seed drawn at random is none)."""
    first: dict[str, int] = {}
    for event in _draws(run):
        for library in _libraries(event, run):
            first[library] = min(event.order, first.get(library, event.order))
    mended = [e for e in run.of("unseeded") if not [*e.value.objects("generator")] and not e.loops]
    for event in [*run.of("seed"), *mended]:
        for library in _libraries(event, run):
            if event.order < first.get(library, event.order + 1):
                yield library


def seed_of(event: Event) -> Site:
    """What to replace where ranks would be seeded apart: the call, or the default of an option that it takes."""
    for origin in event.value.origins:
        if isinstance(origin, Object) and is_clock(origin):
            for node in (origin.node, *origin.source.ancestors(origin.node)):
                parent = origin.source.parents.get(node)
                if isinstance(parent, ast.keyword) and parent.arg == "default":
                    return Site(origin.source, node)
    return Site(event.source, event.node)


def is_per_sample(event: Event) -> bool:
    """Whether something happens while one sample is read, or a worker starts: ranks may differ there."""
    names = {getattr(call.function.node, "name", "") for call in event.calls}
    return any(name in ("__getitem__", "__iter__", "__call__") or "worker" in name for name in names)


def _libraries(event: Event, run: Interpreter) -> set[str]:
    """The libraries whose generator a call seeds or draws from."""
    if event.kind == "numpy_draw":
        return {"numpy"}
    if not isinstance(event.node, ast.Call):
        return {"torch"}
    names = {t.name for t in run.values.get(event.node.func, NOTHING).things if isinstance(t, External)}
    return {"cuda" if name.startswith("torch.cuda") else name.partition(".")[0] for name in names} or {"torch"}


def diverge(
    run: Interpreter, loaders: list[Loader], draws: frozenset[object], models: list[Model], shared: frozenset[ast.AST]
) -> tuple[Site, ...]:
    """The outermost training loop, or one of each alternative, if dropout or noise in it should differ by rank. What is
    ``shared`` out are batches that all ranks draw."""
    if draws and not _drawn_beside_torch(draws, run):
        return ()
    if any(each.iterable for each in loaders):
        return ()
    if any(_is_drawn(e.value) for e in (*run.of("test"), *run.of("schedule")) if not e.inside_forward):
        return ()
    backwards = [e for e in run.events if e.kind == "backward" and e.loops]
    chancy = [model.object for model in models if model.bypassed and unused.runs_by_chance(parts(model.object), run)]
    bypassed = {part.key for module in chancy for part in parts(module)}  # ranks average the gradients that there are
    used = {e: {t.key for t in e.value.models if isinstance(t, Object)} for e in backwards}
    alike = {event.loops[0].node for event, keys in used.items() if not bypassed.isdisjoint(keys)}
    drops = _drop_inside(models)
    found: list[tuple[Event, Loop]] = []
    end = -1
    for event in backwards:
        outer, start = event.loops[0], _start(event.loops[0], run)
        if outer.node in alike or start < end and not all(_is_alternative(event, other) for other, _ in found):
            continue  # the ranks have gone apart already
        for loop in _may_go_apart(event, run):
            end_here = _seeded_again(loop, _start(loop, run), run)
            if _draws_noise(loop, outer, end_here, run, drops, shared):
                found.append((event, loop))
                end = max(end, end_here)
                break
    return tuple(Site(loop.source, loop.node) for _, loop in found)


def _may_go_apart(event: Event, run: Interpreter) -> Iterator[Loop]:
    """The loops around a training step, from the outermost to one in which ranks may go apart: at its next round all
    that they must have in common is seeded again, or comes from rank 0, as a new model does when it is wrapped."""
    for outer, inner in zip(event.loops, (*event.loops[1:], None), strict=True):
        yield outer
        if inner is None:
            return
        between = [e for e in run.events if _is_in(outer, e) and not _is_in(inner, e)]
        drawn = [e for e in between if e.kind in DRAWS and not _is_dropout(e, run)]
        shared = [e for e in between if _is_in_common(e, outer, run) or e in drawn and not _is_of_sampler(e)]
        if shared and shared[0].kind == "seed":
            continue
        if run.plan.bare or any(e.kind != "optimizer" for e in shared):
            return


def _is_in(loop: Loop, event: Event) -> bool:
    return any(each.node is loop.node for each in event.loops)


def _is_in_common(event: Event, loop: Loop, run: Interpreter) -> bool:
    """Whether ranks must have in common what happens in a loop, or beside it. Not an optimizer that each round makes
    anew for the model of the one before."""
    if event.kind != "optimizer" or not _is_in(loop, event):
        return event.kind in SHARED
    stepped = [module for thing in event.value.objects("optimizer") for module in optimized_by(thing)]
    trained = keys(part for module in stepped for part in parts(module))
    made = (e for kind in ("bind", "bind_part") for e in run.of(kind) if _is_in(loop, e))
    return not trained or any(trained & keys(unwrapped(each.value)) for each in made)


def _is_of_sampler(event: Event) -> bool:
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
    libraries = {library for event in ordering for library in _libraries(event, run)}
    unseeded = [sampler for sampler in samplers if _draws_globally(sampler)]
    if unseeded and any(epoch.loader is None for epoch in loader.epochs):  # made anew for each epoch, a seeded one
        libraries.add("torch")  # would draw the same
        unseeded = []
    training = {e.loops[0].node for e in run.of("backward") if e.loops}
    beside = {"torch"} if _drop_inside(models) else set()
    for event in _draws(run):
        if event not in ordering and (is_per_sample(event) or event.loops and event.loops[0].node in training):
            beside |= _libraries(event, run)
    for function in collation.called(collation.collate_fn(loader.object) or NOTHING):
        beside |= set(_mentioned(function, run))
    return replace(
        loader,
        drawn_apart=frozenset(libraries & beside),
        endless=any(map(_is_endless, samplers)),
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
            if not isinstance(loop.node, ast.While) and run.values.get(loop.node.iter, NOTHING).spread is ROWS
        ]
        if not tries or not rows or event.loops.index(rows[0]) > [e.node for e in event.loops].index(tries[-1]):
            continue
        name = event.function.name if event.function is not None else "the step"
        for order in orders:
            if _libraries(order, run) & _libraries(event, run) and order.loops[0].node is event.loops[0].node:
                yield order, name


def _names_order(call: ast.Call) -> bool:
    return last_name(call.func) in ("permutation", "randperm", "shuffle", "sample")


def _mentioned(function: Function, run: Interpreter) -> Iterator[str]:
    """The libraries that a function which no step of the analysis enters draws from, by what it calls."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and {"random_draw", "index_draw"} & run.catalog.roles(_name(node.func, function)):
            yield _name(node.func, function).partition(".")[0]


def _name(node: ast.expr, function: Function) -> str:
    """The name in its library of what a function calls: `numpy.random.rand` for `np.random.rand`."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, function)}.{node.attr}"
    scope = function.scope.find(node.id) if isinstance(node, ast.Name) else None
    held = scope.names[node.id].things if scope is not None and isinstance(node, ast.Name) else ()
    return next((thing.name for thing in held if isinstance(thing, External)), "")


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


def _is_endless(sampler: Object) -> bool:
    """Whether a sampler of the script's own goes on for as long as it is asked."""
    found = sampler.cls.find("__iter__") if sampler.cls is not None else None
    return found is not None and any(
        isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value
        for thing in found[1].things
        if isinstance(thing, Function)
        for node in ast.walk(thing.node)
    )


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
                libraries.setdefault(id(node), set()).update(_libraries(event, run))
    return len(libraries) == len(draws) and not any("torch" in each for each in libraries.values())


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
    loop: Loop, outermost: Loop, end: int, run: Interpreter, drops: bool, shared: frozenset[ast.AST]
) -> bool:
    """Whether dropout or noise in a loop should differ between ranks; ``drops`` if a model of a library drops out.
    Up to ``end`` nothing else may be drawn that they must have in common; see `_may_go_apart` for what is drawn between
    the loop and the ``outermost`` one around it."""
    if isinstance(loop.node, ast.comprehension):
        return False
    start = _start(loop, run)
    later = (e for e in run.events if start < e.order < end and _is_in_common(e, loop, run))
    if any(_is_in(loop, e) or not _is_in(outermost, e) for e in later):
        return False
    varied = {"torch", "cuda", *noise(run, shared)}
    drawn = [*run.of("random"), *filter(_is_for_one_row, run.of("random_number"))]
    early = [e for e in drawn if e.order < end and _libraries(e, run) & varied]
    return drops or any(e.order > start or _is_dropout(e, run) for e in early)


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


def _is_drawn(value: Value) -> bool:
    """Whether an evaluation's noise decides, as in `if validation_loss < best` of a VAE: ranks must agree on it."""
    return any(isinstance(origin, Draw) and origin.evaluates for origin in value.origins)


def noise(run: Interpreter, shared: frozenset[ast.AST]) -> Iterator[str]:
    """Libraries besides torch whose draws in training steps are all arrays of noise, or numbers for one sample after
    the other, never a decision nor a batch that is ``shared`` out, and which draw no order of the samples."""
    steps = run.step_loops
    outer = {event.loops[0].node for event in run.of("backward") if event.loops}
    deciding = {
        library
        for event in run.of("random_number")
        if event.loops and event.loops[0].node in outer and not _is_for_one_row(event) and not is_per_sample(event)
        for library in _libraries(event, run)
    }
    drawn: dict[str, bool] = {}
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        if not isinstance(event.node, ast.expr) or is_per_sample(event):
            continue
        inside = any(loop.node in steps for loop in event.loops)
        if not inside and not (event.loops and event.loops[0].node in outer and _names_order_of(event)):
            continue
        sized = event.kind == "random" and (run.values.get(event.node, NOTHING).spread is ROWS or _is_noise(event.node))
        sized = sized or _is_for_one_row(event)
        if event.kind == "random_number" and not (sized and deciding.isdisjoint(_libraries(event, run))):
            continue
        sized = sized and shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        for library in _libraries(event, run) - {"torch", "cuda"}:
            drawn[library] = drawn.get(library, True) and sized
    yield from (library for library, sized in drawn.items() if sized)


def _names_order_of(event: Event) -> bool:
    return isinstance(event.node, ast.Call) and _names_order(event.node)


def _is_for_one_row(event: Event) -> bool:
    """Whether something is drawn anew for each of a rank's samples."""
    return any(loop.by_row for loop in event.loops)


def drawn_alike(run: Interpreter, varied: frozenset[str], shared: frozenset[ast.AST]) -> Iterator[Event]:
    """Where numbers are drawn for a rank's samples, by one call or for one after the other, from generators that are
    alike on all ranks: those of libraries other than the ``varied`` ones. What is ``shared`` out is drawn for all of
    them, and beside a loader arrays of torch go with the masks of dropout, see `diverge`."""
    steps = run.step_loops
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        inside = any(loop.node in steps for loop in event.loops) and not event.inside_forward
        drawn = run.values.get(event.node, NOTHING) if isinstance(event.node, ast.expr) else NOTHING
        alone = not run.plan.draws and not _libraries(event, run).isdisjoint({"torch", "cuda"})
        sized = drawn.spread is ROWS and not alone and not _is_dropout(event, run) or _is_for_one_row(event)
        dealt = not shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        if inside and sized and not dealt and not is_per_sample(event) and not _libraries(event, run) <= varied:
            yield event


def _is_noise(node: ast.expr) -> bool:
    """`np.random.normal(0, 1, size)`: an array, not a number to decide by."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    least = {"normal": 2, "uniform": 2, "randn": 0, "rand": 0, "standard_normal": 0, "random": 0}.get(node.func.attr)
    return least is not None and (len(node.args) > least or argument(node, "size") is not None)


def _is_dropout(event: Event, run: Interpreter) -> bool:
    if not isinstance(event.node, ast.Call):
        return False
    return any(
        "ropout" in t.name or "Transformer" in t.name or "transforms" in t.name
        for t in run.values.get(event.node.func, NOTHING).things
        if isinstance(t, External)
    )
