"""In which order samples come: what samplers and steps draw for that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.randomness.drawing import draw_events, is_dropout, is_of_sampler, is_per_sample, libraries_of, names_order
from autodist.randomness.dropping import drops
from autodist.script import Loader, Model
from autodist.source import last_name, walk
from autodist.values import (
    NOTHING,
    Draw,
    Object,
    Value,
)

DRAWING = {
    "torch.utils.data.WeightedRandomSampler": 3,
    "torch.utils.data.RandomSampler": 3,
    "torch.utils.data.SubsetRandomSampler": 1,
}
"""Samplers that draw, with the position of their generator."""


def with_shared_order(loader: Loader, run: Interpreter, models: list[Model]) -> Loader:
    """The loader, with what its sampler draws from, if steps and samples draw from that as well.

    Each rank draws as much as its own samples ask for, so that the ranks' generators go apart: then one rank should
    draw the order for all of them.
    """
    samplers = _samplers_of(loader.object)
    ordering = [e for e in draw_events(run) if any(call.function.owner in samplers for call in e.calls)]
    libraries = {library for event in ordering for library in libraries_of(event, run)}
    unseeded = [sampler for sampler in samplers if _draws_globally(sampler)]
    if unseeded and any(epoch.loader is None for epoch in loader.epochs):  # made anew for each epoch, a seeded one
        libraries.add("torch")  # would draw the same
        unseeded = []
    training = {e.loops[0].node for e in run.of("backward") if e.loops}
    beside = {"torch"} if drops(models, run) else set()
    for event in draw_events(run):
        if not is_of_sampler(event) and (is_per_sample(event, run) or event.loops and event.loops[0].node in training):
            beside |= libraries_of(event, run)
    found, made = run.runs.draws, loader.object.node
    beside |= {each.library for each in (*found.collating(made), *found.per_sample(made), *found.seeding(made))}
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
    orders = [e for e in draw_events(run) if e.loops and isinstance(e.node, ast.Call) and names_order(e.node)]
    for event in draw_events(run):
        tries = [loop.node for loop in event.loops if isinstance(loop.node, ast.While)]
        rows = [loop for loop in event.loops if loop.through is not None and run.has_rows(loop.through.iter)]
        if not tries or not rows or event.loops.index(rows[0]) > [e.node for e in event.loops].index(tries[-1]):
            continue
        name = event.function.name if event.function is not None else "the step"
        for order in orders:
            if libraries_of(order, run) & libraries_of(event, run) and order.loops[0].node is event.loops[0].node:
                yield order, name


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
    loops = [n for n in walk(function) if isinstance(n, ast.While)]
    endless = [loop for loop in loops if isinstance(loop.test, ast.Constant) and loop.test.value]
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for loop in endless for node in walk(loop))


def drawn_beside_torch(draws: frozenset[object], run: Interpreter) -> bool:
    """Whether the indices that ranks must have in common all come from another generator than dropout and noise."""
    libraries: dict[int, set[str]] = {}
    for event in draw_events(run):
        for node in (event.node, *event.source.ancestors(event.node)):
            if id(node) in draws:
                libraries.setdefault(id(node), set()).update(libraries_of(event, run))
    if len(libraries) < len(draws):  # some draw nothing, as `data[i : i + batch_size]` unless its order is drawn
        if any(ordering(run)):
            return False
    return not any("torch" in each for each in libraries.values())


def ordering(run: Interpreter) -> Iterator[Event]:
    """What loops draw from torch that may be the order of their samples."""
    for event in draw_events(run):
        if event.loops and not is_dropout(event, run) and not event.inside_forward and not _fills(event):
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


def picks_of_all(run: Interpreter) -> dict[ast.AST, Event]:
    """What steps draw to pick from something that all ranks have alike, by numbers that do not go by those of a rank's
    samples: `memory[torch.randperm(len(memory))[:8]]`. With each comes where that picks."""
    return {
        node: event
        for event in reversed(run.of("picks"))
        if event.loops and not event.inside_forward
        for thing in event.value.things
        if isinstance(thing, Draw)
        for node in walk(thing.node)
        if isinstance(node, ast.Call) and run.is_alike(node)
    }
