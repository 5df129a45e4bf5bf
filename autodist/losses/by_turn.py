"""Training steps that go over their samples one by one, and whether a rank may take its share of the rounds.

It may where a round is about one sample alone, and all that is left of it adds up: losses, gradients, counts. What a
round does with its sample is its own affair then; no axis of a tensor has to be known.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autodist.interpreter import Event, Interpreter, Loop, Plan
from autodist.losses import rounds
from autodist.models import differentiated, parts
from autodist.placement import Replicate
from autodist.script import Model, Site
from autodist.solve.facts import is_mean
from autodist.solve.learned import learned
from autodist.solve.losses import Losses
from autodist.source import shortened, walk
from autodist.values import NOTHING, External, Function, Object

RANDOM = ("random", "random_number", "numpy_draw")
GRADIENTS = {
    "optimizer_zero_grad": "clears the gradients of the samples before",
    "model_zero_grad": "clears the gradients of the samples before",
    "clip": "clips the gradients of one sample, or of all so far",
    "gradient": "reads the gradients of all samples so far",
    "unscale": "unscales the gradients of all samples so far",
    "schedule": "goes on in a schedule with each sample",
}
BEGINNING = "goes over the samples of a step one by one, of which a rank cannot take its share: "
SHARDED = "all ranks take part in each forward pass of a sharded model, and they have different samples; use DDP"

ACCUMULATED = (
    "adds up the gradients of one sample after the other until a condition asks for a step: go over the samples of a "
    "step in a loop of their own, of which a rank can take its share (`for sample in batch`)"
)


@dataclass(frozen=True)
class Turns:
    """What loops go over one sample after the other, whether ranks need as many of them, or why none has a share."""

    nodes: frozenset[ast.expr] = frozenset()
    even: bool = False
    site: Site | None = None
    reason: str = ""


def find(settled: Callable[[Plan], tuple[Losses, bool]], plan: Plan, first: Interpreter, sharded: bool) -> Turns | None:
    """The loops of which ranks share the rounds; None where no step has one. The forward passes of ``sharded`` models
    meet those of other ranks. ``settled`` finds how losses lie under a plan once what makes them exact is planned, and
    whether anything does."""
    if any(True for event in first.of("backward") for each in event.value.origins if isinstance(each, Object)):
        return None  # of a loader
    if (site := _accumulated(first)) is not None:
        return Turns(site=site, reason=ACCUMULATED)
    loops = _inside_steps(first)
    if not loops or any(e.through is None or rounds.goes_over_models(e.through, e.source, first) for e in loops):
        return None
    objection = next((each for loop in loops for each in _objections(loop, first)), None)
    if objection is None:
        backwards = [event for event in first.of("backward") if _in_any(event, loops)]
        kept = any(rounds.grows(loop.through) for loop in loops if loop.through is not None)
        even = bool(backwards) or kept or _meet_in_passes(first)
        nodes = frozenset(loop.through.iter for loop in loops if loop.through is not None)
        found = Turns(nodes, even)
        shared = replace(plan, sharded=frozenset(), draws=frozenset(), turns=nodes, even=even)
        objection = next(_of_losses(first, *settled(shared), even), None)
        if objection is None and not sharded:
            return found
        objection = objection or (Site(loops[0].source, loops[0].node), SHARDED)
    site, reason = objection
    return Turns(site=site, reason=BEGINNING + reason)


def _accumulated(run: Interpreter) -> Site | None:
    """A step that a loop takes now and then, where each of its rounds has a backward pass."""
    for step in run.of("step"):
        loop = step.loops[-1] if step.loops else None
        if loop is None or not isinstance(loop.node, ast.For):
            continue
        test = next((each for each in step.source.ancestors(step.node) if isinstance(each, (ast.If, ast.For))), None)
        passes = [e for e in run.of("backward") if e.loops and e.loops[-1].node is loop.node]
        if isinstance(test, ast.If) and any(test not in each.source.ancestors(each.node) for each in passes):
            return Site(step.source, test)
    return None


def averaged_by_hand(models: list[Model], run: Interpreter) -> list[Model]:
    """The models, of which some run other parts for one sample than for the next, as over trees: their wrapper would
    wait for gradients that another rank has."""
    reason = "it runs other parts for one sample than for the next"
    return [
        (
            replace(model, bypassed=reason)
            if model.bypassed is None and not model.wrapped and _runs_apart(model.object, run)
            else model
        )
        for model in models
    ]


def _runs_apart(model: Object, run: Interpreter) -> bool:
    """Whether it depends on a sample which parts of a model run, by tests or by what a sample holds."""
    inside = parts(model)
    methods = {each.node for part in inside if part.cls is not None for each in _methods(part)}
    return learned(run.runs.program).varies(model.node) or any(rounds.goes_by_sample(each) for each in methods)


def _methods(part: Object) -> Iterator[Function]:
    for cls in part.cls.line() if part.cls is not None else ():
        for value in cls.scope.names.values():
            yield from value.functions


def _inside_steps(run: Interpreter) -> list[Loop]:
    """The outermost loops within training steps in which models learn: `for x, y in batch: loss += f(model(x), y)`."""
    around = {loop.node for event in run.of("step") for loop in event.loops}
    found: dict[ast.AST, Loop] = {}
    for event in (each for kind in ("forward", "model_method") for each in run.of(kind)):
        steps = [loop for loop in event.loops if loop.node in around]
        inner = next((loop for loop in event.loops if loop.node not in around), None)
        if event.grad and steps and inner is not None and not event.inside_forward:
            found.setdefault(inner.node, inner)
    return list(found.values())


def _in_any(event: Event, loops: list[Loop]) -> bool:
    nodes = {loop.node for loop in loops}
    return any(loop.node in nodes for loop in event.loops)


def _objections(loop: Loop, run: Interpreter) -> Iterator[tuple[Site, str]]:
    """Why the rounds of a loop belong together."""
    source, through = loop.source, loop.through
    if through is None:
        return
    if run.values.get(through.iter, NOTHING).spread.is_local or any(run.values[through.iter].objects("loader")):
        yield Site(source, through.iter), "it goes over what is no list of samples that all ranks have"
    for node, reason in rounds.tied(through, source, run):
        yield Site(run.sources.get(node, source), node), reason
    inside = [event for event in run.events if any(each.node is loop.node for each in event.loops)]
    for event in inside:
        if event.kind in GRADIENTS and event.grad:
            yield Site(event.source, event.node), f"{_code(event)} {GRADIENTS[event.kind]}"
        if event.kind == "backward" and not _always(event, loop):
            yield Site(event.source, event.node), "not every sample has a backward pass, which ranks make together"
    yield from _of_random_numbers(inside, loop, run)
    modules = {t: event for event in inside if event.kind == "forward" for t in event.value.objects("module")}
    for module, event in modules.items():
        if run.normalises(module):
            yield Site(event.source, event.node), "BatchNorm keeps averages of one sample after the other"


def _of_random_numbers(inside: list[Event], loop: Loop, run: Interpreter) -> Iterator[tuple[Site, str]]:
    """What is drawn in a round is drawn by another number of rounds on each rank."""
    around = {each.node for event in run.of("backward") for each in event.loops}
    drawn = (event for kind in RANDOM for event in run.of(kind) if any(each.node in around for each in event.loops))
    outside = [event for event in drawn if event.grad and event not in inside and not event.inside_forward]
    others = {library for event in outside for library in _libraries(event, run)}
    for event in (each for each in inside if each.kind in RANDOM and each.grad):
        if not event.inside_forward:
            yield Site(event.source, event.node), f"{_code(event)} draws in each round; draw ahead of the loop"
        elif not others.isdisjoint(_libraries(event, run)):
            yield (
                Site(event.source, event.node),
                f"{_code(event)} draws for each sample from the generator that the order of the samples comes from, "
                "and ranks would no longer draw the same order; draw that from a generator of its own",
            )


def _libraries(event: Event, run: Interpreter) -> set[str]:
    """The libraries whose generator is drawn from."""
    if event.kind == "numpy_draw":
        return {"numpy"}
    called = run.values.get(event.node.func, NOTHING).things if isinstance(event.node, ast.Call) else ()
    names = {thing.name.partition(".")[0] for thing in called if isinstance(thing, External)}
    return names or {"torch"}


def _always(event: Event, loop: Loop) -> bool:
    """Whether a round comes to an event whatever its sample is."""
    stop = (ast.If, ast.Try, ast.IfExp, ast.While, ast.Continue)
    for node in event.source.ancestors(event.node):
        if node is loop.node:
            break
        if isinstance(node, stop):
            return False
    return not any(isinstance(node, ast.Continue) for node in walk(loop.node))


def _meet_in_passes(run: Interpreter) -> bool:
    """Whether models may have buffers, which their wrappers send to all ranks in each forward pass."""
    modules = {module for event in run.of("backward") for module in differentiated(run, event)}
    layers = {part for module in modules for part in parts(module)}
    foreign = any(each.cls is None and not each.name.startswith("torch.nn.") for each in layers)
    return foreign or any("register_buffer" in source.text for source in run.project.sources)


def _of_losses(run: Interpreter, losses: Losses, mended: bool, even: bool) -> Iterator[tuple[Site, str]]:
    """Losses that do not add up. Means count for as much on each rank where all have as many rounds, an ``even``
    number, or where they are ``mended``."""
    for event in (each for each in run.of("backward") if differentiated(run, each)):
        lying = losses.of(event.node)
        if all(each == Replicate() for each in lying):
            yield Site(event.source, event.node), "another loss of the step is that of all samples on each rank"
        elif not all(losses.adds_up(each) or is_mean(each) and (even or mended) for each in lying):
            yield Site(event.source, event.node), f"{_code(event)} takes no sum or mean of their losses"


def _code(event: Event) -> str:
    return shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
