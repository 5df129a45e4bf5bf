"""Noise that is drawn for a rank's samples: each for its own, or for those of all ranks."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain

from autodist import tensors
from autodist.interpreter import Event, Interpreter
from autodist.randomness.drawing import (
    DRAWS,
    drawn,
    is_dropout,
    is_for_a_parameter,
    is_for_one_row,
    is_in,
    is_noise,
    is_parted,
    is_per_sample,
    libraries_of,
    names_order,
    names_order_of,
    seeded,
)
from autodist.script import Loader, SampleGenerator, Site, WholeNoise
from autodist.solve.draws import Draw
from autodist.values import (
    Object,
    drawn_from,
)

DRAWS_LIKE = frozenset(["rand_like", "randn_like", "randint_like"])
"""What draws for each number of a tensor that it is given."""


def adds_noise(run: Interpreter, for_all: Collection[ast.AST]) -> bool:
    """Whether steps draw noise for the samples of a rank alone: `x + torch.randn(x.shape)`"""
    steps = (e for e in run.of("random") if any(loop.node in run.step_loops for loop in e.loops))
    drawn = {event.node for event in steps if isinstance(event.node, ast.expr) and not is_per_sample(event, run)}
    return any(run.has_rows(node) for node in drawn if node not in for_all)


def augmenting(loaders: Collection[Loader], run: Interpreter) -> list[Draw]:
    """What a rank itself draws for the samples that it reads, from generators that all of them seed alike, or that a
    library has seeded."""
    at_times = {library for event in run.of("seed") for library in libraries_of(event, run)}  # `if args.seed:`
    alike = {"torch", "imgaug", *at_times, *seeded(run), *drawn(run), *drawn_for_batches(loaders, run)}
    draws, placements = run.runs.draws, run.placements
    found = (draws.per_sample(each.object.node, each.iterable, placements) for each in loaders)
    return [each for each in (*chain(*found), *draws.in_steps(placements)) if each.library in alike]


def augmenting_workers(loaders: Iterable[Loader], run: Interpreter) -> list[Draw]:
    """What workers draw, whom torch seeds from the generator of their rank."""
    return [each for loader in loaders for each in _by_workers(loader, run, loader.iterable)]


def _by_workers(loader: Loader, run: Interpreter, stream: bool = False) -> list[Draw]:
    return run.runs.draws.by_workers(loader.object.node, stream, run.placements)


def _for_batches(loaders: Iterable[Loader], run: Interpreter) -> Iterator[tuple[Draw, bool]]:
    return (each for loader in loaders for each in run.runs.draws.per_batch(loader.object.node, run.placements))


def drawn_for_batches(loaders: Iterable[Loader], run: Interpreter) -> Iterator[str]:
    """The libraries from which the process of a loader itself draws once for a whole batch, in a `collate_fn`."""
    return (each.library for each, itself in _for_batches(loaders, run) if itself)


def batches_apart(loaders: Iterable[Loader], run: Interpreter) -> list[Site]:
    """Where that is drawn from a generator that differs by rank, once torch's does: from torch's, or from one of a
    worker, whom torch seeds."""
    drawn = _for_batches(loaders, run)
    return [Site(each.source, each.node) for each, itself in drawn if not itself or each.library == "torch"]


def seeds_workers(loader: Loader, run: Interpreter) -> bool:
    """Whether a loader is given a generator, which begins alike on all ranks, and its workers draw."""
    told = loader.object.argument("generator", 12)
    given = told is not None and told.const is not None and not loader.iterable
    return given and bool(_by_workers(loader, run))


def augmented_alike(loaders: Collection[Loader], run: Interpreter, varied: frozenset[str]) -> list[Draw]:
    """What is drawn for the samples that ranks read, of generators that stay alike on all ranks: those of other
    libraries than the ``varied`` ones. Workers draw as torch has seeded them."""
    itself = [each for each in augmenting(loaders, run) if each.library not in varied]
    return [*itself, *([] if "torch" in varied else augmenting_workers(loaders, run))]


def noise(run: Interpreter, shared: frozenset[ast.AST], loaders: Collection[Loader]) -> Iterator[str]:
    """Libraries besides torch whose draws in training steps are all arrays of noise, or numbers for one sample after
    the other, never a decision nor a batch that is ``shared`` out, and which draw no order of the samples. What an
    evaluation between steps seeds, on all ranks alike, is none of them."""
    steps = run.step_loops
    outer = {event.loops[0].node for event in run.of("backward") if event.loops}
    deciding = {
        library
        for event in run.of("random_number")
        if event.loops
        and event.loops[0].node in outer
        and not is_for_one_row(event, run)
        and not is_per_sample(event, run)
        for library in libraries_of(event, run)
    }
    deciding |= _seeded_between(run, {loader.object for loader in loaders}, outer)
    own = {e.library for e in augmenting(loaders, run)} - {"torch"} - deciding
    ordering = {library for loader in loaders for library in loader.drawn_apart}
    drawn: dict[str, bool] = dict.fromkeys(own - ordering, True)
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        if not isinstance(event.node, ast.expr) or is_per_sample(event, run):
            continue
        inside = any(loop.node in steps for loop in event.loops)
        if not inside and not (event.loops and event.loops[0].node in outer and names_order_of(event)):
            continue
        sized = event.kind == "random" and (run.has_rows(event.node) or is_noise(event.node))
        sized = sized or is_for_one_row(event, run)
        sized = sized and (inside or not names_order_of(event))  # of batches that are kept: `random.shuffle(batches)`
        if event.kind == "random_number" and not (sized and deciding.isdisjoint(libraries_of(event, run))):
            continue
        sized = sized and shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        sized = sized and not is_for_a_parameter(event, run)
        for library in libraries_of(event, run) - {"torch", "cuda"}:
            drawn[library] = drawn.get(library, True) and sized
    drawn |= dict.fromkeys(drawn_for_batches(loaders, run), False)
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
        for library in {each.library for each in run.runs.draws.seeding(loader.node, training=False)}
    }


def drawn_alike(run: Interpreter, varied: frozenset[str], shared: frozenset[ast.AST]) -> Iterator[Event]:
    """Where numbers are drawn for a rank's samples, by one call or for one after the other, from generators that are
    alike on all ranks: those of libraries other than the ``varied`` ones. What is ``shared`` out is drawn for all of
    them, and beside a loader arrays of torch go with the masks of dropout, see `diverge`, unless each step is seeded.
    """
    steps = run.step_loops
    for event in (each for kind in DRAWS[:2] for each in run.of(kind)):
        inside = any(loop.node in steps for loop in event.loops) and not event.inside_forward
        seeded_there = any(is_in(loop, each) for each in run.of("seed") for loop in event.loops[-1:])
        alone = not run.plan.draws and not seeded_there and not libraries_of(event, run).isdisjoint({"torch", "cuda"})
        sized = run.has_rows(event.node) and not alone and not is_dropout(event, run) or is_for_one_row(event, run)
        dealt = not shared.isdisjoint((event.node, *event.source.ancestors(event.node)))
        if inside and sized and not dealt and not is_per_sample(event, run) and not libraries_of(event, run) <= varied:
            yield event


def noise_of_own(run: Interpreter) -> Iterator[Event]:
    """Where steps draw for a rank's samples from a generator of the script's own, which begins alike on all ranks."""
    steps = run.step_loops
    for event in (each for each in run.of("noise_drawn") if each.value.const is True):
        if (
            any(loop.node in steps for loop in event.loops)
            and not is_per_sample(event, run)
            and run.has_rows(event.node)
        ):
            yield event


def generators_of_samples(loaders: Iterable[Loader], run: Interpreter) -> dict[Site, bool]:
    """Where generators of the script's own are made from which the samples of training loaders alone are drawn: they
    begin alike on all ranks; and whether one call makes several. Not in a module that is imported, before there is a
    group."""
    read = (each.object.node for each in loaders if not each.iterable)
    found = run.runs.generators.of_samples(read, run.placements)
    made = {Site(e.source, e.node): run.runs.generators.are_several(e) for e in found if e.source is not None}
    entry = run.project.entry
    return {e: several for e, several in made.items() if e.source is entry or e.source.function(e.node) is not None}


def kept_generators(
    loaders: Iterable[Loader], by_rank: Iterable[Site], run: Interpreter
) -> tuple[tuple[SampleGenerator, ...], tuple[Site, ...]]:
    """The generators that begin alike on all ranks, and from which samples of training loaders are drawn, besides those
    that are seeded ``by_rank`` where they are made: such as can begin anew once their object has drawn all else, and
    the others."""
    settled = {*(each.node for each in by_rank), *(event.node for event in run.of("unseeded"))}
    read = [(each.object.node, each.iterable) for each in loaders]
    kept, left = run.runs.generators.kept(read, settled, run.placements)
    again = (SampleGenerator(e.source, e.made, e.source.code(e.name), e.last, e.seed) for e in kept)
    return tuple(again), tuple(Site(source, node) for source, node in left)


def drawn_for_all(
    run: Interpreter, apart: Iterable[Site], shared: frozenset[ast.AST], whole: Collection[ast.AST]
) -> Iterator[WholeNoise]:
    """Where noise is drawn for as many samples as a rank has, from a generator that is alike on all ranks, so that it
    can be drawn for those of all ranks. The ``whole`` sizes are those of batches."""
    loops = {each.node for each in apart}
    drawn: dict[ast.AST, list[Event]] = {}
    for event in run.of("noise_drawn"):
        drawn.setdefault(event.node, []).append(event)
    for node, events in drawn.items():
        if any(e.on_one_rank or is_per_sample(e, run) or is_for_one_row(e, run) for e in events):
            continue
        if not run.has_rows(node, always=True):
            continue
        if not isinstance(node, ast.Call) or not shared.isdisjoint((node, *events[0].source.ancestors(node))):
            continue
        alike = all(_is_seeded_alike(e, loops, run) or not loops and "torch" in libraries_of(e, run) for e in events)
        if (alike or any(e.value.const is True for e in events)) and not any(is_dropout(e, run) for e in events):
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
        return WholeNoise(source, node, node, like=like) if like is not None and run.has_rows(like) else None
    if names_order(node) and not name.startswith("torch.distributions."):
        return None  # of a rank's own rows, which those of others are not among
    size = tensors.drawn(name, node)
    if size is None and node.args and isinstance(node.args[0], ast.Starred):
        size = node.args[0].value
    shaped = _sized_like(size) if size is not None else None
    if shaped is not None:
        return WholeNoise(source, node, node, shape=size) if run.has_rows(shaped) else None
    if size is None or not run.counts_samples(size):
        return None
    method = source.parents.get(node)  # several for each sample: `multinomial(weights, len(x) * 5).view(len(x), 5)`
    view = source.parents.get(method) if method is not None else None
    if isinstance(method, ast.Attribute) and method.attr in ("view", "reshape") and isinstance(view, ast.Call):
        first = view.args[0] if view.args else None
        if first is not None and run.counts_samples(first):
            return WholeNoise(source, node, view, (size, first))
    return WholeNoise(source, node, node, (size,))


def _sized_like(node: ast.expr) -> ast.expr | None:
    """The tensor of `x.size()` and `x.shape`."""
    asked = isinstance(node, ast.Call) and not node.args
    named = node.func if isinstance(node, ast.Call) else node
    is_shape = isinstance(named, ast.Attribute) and named.attr == ("size" if asked else "shape")
    return named.value if isinstance(named, ast.Attribute) and is_shape else None


def _is_seeded_alike(event: Event, apart: set[ast.AST], run: Interpreter) -> bool:
    """Whether ranks have just been seeded alike where they draw from torch, between the loops in which they go apart:
    `torch.manual_seed(0)` ahead of a preview in each epoch."""
    if "torch" not in libraries_of(event, run) or event.inside_forward or is_parted(event, apart):
        return False
    seeds = [e for e in run.of("seed") if e.order < event.order and "torch" in libraries_of(e, run)]
    around = {loop.node for loop in event.loops}
    within = [e for e in seeds if around <= {loop.node for loop in e.loops}]
    parted = [e.order for e in run.events if e.order < event.order and is_parted(e, apart)] if within else []
    return bool(within) and max(parted, default=-1) < within[-1].order
