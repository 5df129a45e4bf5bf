"""The loops over evaluations that are shared out, or why they are not: each rank goes through batches of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autodist import parting
from autodist.config import Config, Evaluation, Strategy
from autodist.interpreter import Event, Interpreter
from autodist.models import parts, unwrapped
from autodist.program import Program
from autodist.rule import Severity
from autodist.script import Concern, SharedEvaluation, Site, TrainingScript
from autodist.solve.evaluation import shared_out, whole
from autodist.solve.rounds import Shared
from autodist.solve.stores import is_path
from autodist.solve.worth import is_worth_sharing
from autodist.solve.written import loop_over
from autodist.source import Source, argument, walk
from autodist.values import NOTHING, External, Function, Object, Path_, Value, Wrapped, drawn_from

PLAIN = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
IN_ORDER = ("SequentialSampler", "BatchSampler")
"""Samplers of torch that draw nothing themselves."""
DEPTH = 4


def with_shared_evaluations(
    script: TrainingScript, run: Interpreter, program: Program, trained: set[tuple[int, Path_]], config: Config
) -> TrainingScript:
    """The script whose evaluations are shared out as far as that changes no number, and what is said of the others."""
    loops = _loops(run, trained)
    if not loops or not script.trains:
        return script
    base = whole(program, run.catalog)
    found: list[SharedEvaluation] = []
    concerns: list[Concern] = []
    for event in loops:
        source = event.source
        shared = _of(event)
        if shared is None:
            node = event.node if isinstance(event.node, ast.stmt) else source.parents[event.node]
            if config.evaluation is Evaluation.SHARED:
                concerns.append(_stays(source, node, "it is no plain loop over a loader"))
            continue
        if config.evaluation is Evaluation.AUTO and not is_worth_sharing(shared.over, program, run.catalog, base):
            continue
        loop = shared.loop
        for node, reason in _as_it_runs(shared, script, run, trained, config.strategy, {each.node for each in loops}):
            shared.say(node, reason)
        if shared.is_exact:
            shared = shared_out(shared, program, run.catalog, base)
        unwraps = _wrapped(shared, run) if shared.is_exact else []
        unequal = _unequal(shared, unwraps, run)
        for node, reason in _in_its_functions(shared, script, run) if shared.is_exact else ():
            shared.say(node, reason)
        if shared.is_exact:
            loaders = tuple(run.values.get(shared.over, NOTHING).objects("loader"))
            left, listing = tuple(shared.left), shared.listing
            found.append(SharedEvaluation(source, loop, shared.over, left, tuple(unwraps), unequal, loaders, listing))
        else:
            where, node, reason = shared.reasons[0]
            line = f" (line {getattr(node, 'lineno', '?')})" if node not in (loop, shared.root) else ""
            concerns.append(_stays(source, shared.root, f"{reason}{line if where is source else ''}"))
    bare = {site.node for each in found for site in each.unwraps if not _is_surely_wrapped(site.node, run)}
    taken = {site.node for site in script.unwraps}
    more = dict.fromkeys(site for each in found for site in each.unwraps if site.node not in taken)
    return replace(
        script,
        evaluations=tuple(found),
        unwraps=(*script.unwraps, *more),
        maybe_wrapped=script.maybe_wrapped | bare,
        concerns=(*script.concerns, *concerns),
    )


def _of(event: Event) -> Shared | None:
    """The loop in which a pass begins, if it is one of a statement, a list, or of numbers that are added up."""
    loop, source = event.node, event.source
    if isinstance(loop, ast.For):
        return Shared(loop, source, loop_over(loop))
    above = source.parents[loop]
    if isinstance(loop, ast.comprehension) and isinstance(above, (ast.ListComp, ast.GeneratorExp)):
        return Shared(loop, source, loop_over(loop), above) if above.generators[0] is loop else None
    return None


def _stays(source: Source, node: ast.AST, reason: str) -> Concern:
    return Concern("AD212", source, node, f"every rank evaluates all of the data here: {reason}", Severity.NOTE)


def _loops(run: Interpreter, trained: set[tuple[int, Path_]]) -> list[Event]:
    """Where passes over loaders that do not train begin, outside of loops that train."""
    found: dict[ast.AST, Event] = {}
    steps = {loop.node for event in run.of("backward") for loop in event.loops[-1:]}
    for event in run.of("iterate"):
        loaders = drawn_from(event.value)
        if event.node not in steps and any(each.key not in trained for each in loaders):
            found.setdefault(event.node, event)
    return sorted(found.values(), key=lambda each: each.order)


def _as_it_runs(
    shared: Shared,
    script: TrainingScript,
    run: Interpreter,
    trained: set[tuple[int, Path_]],
    strategy: Strategy,
    others: set[ast.AST],
) -> Iterator[tuple[ast.AST, str]]:
    """What of loaders, models and ranks speaks against sharing a loop out."""
    loop, over = shared.loop, shared.over
    if strategy.shards:
        yield loop, "the forward pass of a sharded model is run by all ranks together, as often on each"
    value = run.values.get(over, NOTHING)
    loaders = list(value.objects("loader"))
    if not loaders or len(loaders) < len(value.things) or _is_zipped(loop, run):
        yield over, "what the loop goes over is not known to be one loader alone"
    for each in loaders:
        yield from ((over, reason) for reason in _of_loader(each, script, run, trained))
    around = {each.node for event in run.of("iterate") if event.node is loop for each in event.loops} - {loop}
    if not around.isdisjoint(others):
        yield loop, "it stands in a loop over another evaluation, of which ranks have different numbers of rounds"
    events = [event for event in run.events if any(each.node is loop for each in event.loops)]
    for event in events:
        if event.on_one_rank:
            yield event.node, "rank 0 alone evaluates"
        if event.kind == "forward" and event.grad:
            yield event.node, "the model keeps gradients: evaluate below `with torch.no_grad():`"
        if event.kind == "training_forward" and not all(map(_has_no_modes, unwrapped(event.value))):
            if not all(isinstance(each, Object) and _is_plain(each, run) for each in unwrapped(event.value)):
                yield event.node, "the model may be in training mode, as nothing calls its eval() before"
        if event.kind == "measured":
            yield event.node, "a metric joins what the ranks have by itself"
    alone = {each.node for each in (*script.guards, *script.opens, *script.prepared_alone, *script.answering)}
    if _is_alone(loop, shared.source, alone, run):
        yield loop, "rank 0 alone comes there"
    decided = {each.node for each in script.decisions}
    for decision in parting.decisions(run, frozenset(alone), frozenset(), [over]):
        if decision.node not in decided:
            yield decision.node, "ranks may come there at different times"


def _is_zipped(loop: ast.For | ast.comprehension, run: Interpreter) -> bool:
    """Whether a loop goes over several things side by side, or over what something else makes of a loader."""
    over: ast.expr = loop.iter
    while isinstance(over, ast.Call):
        names = [each.name for each in run.values.get(over.func, NOTHING).things if isinstance(each, External)]
        if not over.args or not names:
            return True
        if not all(name == "builtins.enumerate" or run.catalog.has(name, "progress") for name in names):
            return True
        over = over.args[0]
    return False


def _of_loader(
    loader: Object, script: TrainingScript, run: Interpreter, trained: set[tuple[int, Path_]]
) -> Iterator[str]:
    """What of a loader speaks against making another one of its batches."""
    together = {each.node for each in script.loaders if each.mixed and each.switch is None}
    if loader.key in trained or run.shares_out(loader) or loader.node in together:
        yield "a loader that trains comes there, too"
    if loader.name not in PLAIN or loader.cls is not None:
        yield "its loader is none of torch's own"
        return
    size = argument(loader.node, "batch_size", 1)
    if isinstance(size, ast.Constant) and size.value is None:
        yield "its loader gives single samples"
    yield from _of_order(loader, script)
    data = loader.argument("dataset", 0) or NOTHING
    for each in _within(data):
        if "iterable_dataset" in each.roles:
            yield "its data are a stream"
        drawing = each.cls is None and run.catalog.draws(each.name) and ("transform" in each.name.lower())
        if drawing:
            yield f"{each.kind} draws anew for each sample"


def _of_order(loader: Object, script: TrainingScript) -> Iterator[str]:
    """Why ranks may draw the batches of a loader in different orders: AD206 has them draw alike."""
    shuffle, generator = loader.argument("shuffle", 2), argument(loader.node, "generator")
    shuffles = shuffle is not None and (shuffle.const not in (False, None) or bool(shuffle.origins))
    if shuffles and (generator is not None or loader.node not in {site.node for site in script.evaluation_loaders}):
        yield "its loader shuffles by a generator that others may draw from"
    alike = {site.node for site in script.evaluation_samplers}
    pending = [given for name, at in (("sampler", 3), ("batch_sampler", 4)) if (given := loader.argument(name, at))]
    while pending:
        given = pending.pop()
        for each in given.things:
            if not isinstance(each, Object) or each.cls is not None or not each.name.startswith("torch.utils.data."):
                yield "its loader has a sampler that is not known"
            elif each.name.rpartition(".")[2] in IN_ORDER:
                pending += [part for part in (each.argument("sampler", 0),) if part is not None]
            elif each.node not in alike:
                yield "its loader has a sampler that ranks may draw from differently"
        if not given.things and given.const is not None:
            yield "its loader has a sampler that is not known"


def _within(value: Value, depth: int = DEPTH) -> Iterator[Object]:
    """The objects that one holds, or is made with."""
    for each in value.things if depth else ():
        if isinstance(each, Object):
            yield each
            for inner in (*each.args, *each.keywords.values(), *each.attributes.values()):
                yield from _within(inner, depth - 1)
        else:
            for inner in (*getattr(each, "parts", ()), getattr(each, "element", NOTHING)):
                yield from _within(inner, depth - 1)


def _has_no_modes(module: object) -> bool:
    """Whether it is a loss, or another function that is an object of torch."""
    return isinstance(module, Object) and "loss" in module.roles


def _is_plain(module: Object, run: Interpreter) -> bool:
    """Whether a model does the same in training mode as in evaluation mode: it drops and normalises nothing."""
    inside = [module, *parts(module)]
    known = all(each.cls is not None or each.name.startswith("torch.nn.") for each in inside)
    dropping = any("dropout" in run.catalog.roles(each.name) for each in inside if each.cls is None)
    norms = any(
        "Norm" in each.name and "LayerNorm" not in each.name and "GroupNorm" not in each.name for each in inside
    )
    return known and not dropping and not norms and not run.normalises(module)


def _is_alone(node: ast.AST, source: Source, alone: set[ast.AST], run: Interpreter, depth: int = 6) -> bool:
    """Whether rank 0 alone comes to a place, itself or where the function around it is called."""
    if any(each in alone for each in (node, *source.ancestors(node))):
        return True
    function = source.function(node)
    calls = run.callers.get(function, {}).items() if function is not None and depth else ()
    return any(_is_alone(call, where, alone, run, depth - 1) for call, where in calls)


def _in_its_functions(shared: Shared, script: TrainingScript, run: Interpreter) -> Iterator[tuple[ast.AST, str]]:
    """Where ranks would communicate in the rounds, of which they have different numbers."""
    sites: list[Site | object] = [
        *script.reductions, *script.gathered, *script.joined, *script.terms, *script.weighed, *script.waits,
        *script.decisions, *script.common_draws, *script.previews, *script.prepared_alone, *script.answering,
        *script.first_writes, *script.rewrites, *script.drawn_for_all,
    ]  # fmt: skip
    met = {node for each in sites for node in (getattr(each, "node", None), getattr(each, "hoist", None))}
    for root in (shared.root, *shared.functions):
        for node in walk(root):
            if node in met:
                yield node, "ranks communicate in each round"
    if shared.drops and any(
        event.kind == "training_forward" and not all(map(_has_no_modes, unwrapped(event.value)))
        for event in run.events
        if any(each.node is shared.loop for each in event.loops)
    ):
        yield shared.loop, "the model may be in training mode, as nothing calls its eval() before"


def _wrapped(shared: Shared, run: Interpreter) -> list[Site]:
    """Where the rounds call a model in its wrapper, which would have ranks wait for each other."""
    found: list[Site] = []
    places: Iterable[tuple[ast.AST, Source]] = [(shared.root, shared.source), *shared.functions.items()]
    for root, source in places:
        for node in walk(root):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in ("forward", "__call__"):
                called = called.value
            things = run.values.get(called, NOTHING).things if called is not None else ()
            if isinstance(node, ast.Call) and not any(isinstance(each, Function) for each in things):
                for given in (*node.args, *(each.value for each in node.keywords)):
                    if any(isinstance(each, Wrapped) for each in run.values.get(given, NOTHING).things):
                        shared.say(node, "a library is given the model in its wrapper", source)
            if called is None or not any(isinstance(each, Wrapped) for each in things):
                continue
            if root in shared.elsewhere:
                shared.say(node, "training calls the model by the same function", source)
            found.append(Site(source, called))
    return found


def _unequal(shared: Shared, unwraps: Iterable[Site], run: Interpreter) -> tuple[str, ...]:
    """The models whose buffers are each rank's own until DistributedDataParallel runs them again, as the loop names
    them: statistics of batches, which are not synchronised on a CPU."""
    found: dict[str, None] = {}
    for site in unwraps:
        value = run.values.get(site.node, NOTHING)  # type: ignore[call-overload]
        if not any(isinstance(each, Object) and run.normalises(each) for each in unwrapped(value)):
            continue
        names = [each for each in walk(shared.root) if isinstance(each, (ast.Name, ast.Attribute))]
        same = [each for each in names if is_path(each) and run.values.get(each, NOTHING).things & value.things]
        bound = {each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        codes = [code for each in same if (code := ast.unparse(each)).partition(".")[0] not in bound]
        if codes:
            found[codes[0]] = None
        else:
            shared.say(site.node, "statistics of batches are each rank's own on a CPU", site.source)
    return tuple(found)


def _is_surely_wrapped(node: ast.AST, run: Interpreter) -> bool:
    things = run.values.get(node, NOTHING).things  # type: ignore[call-overload]
    return all(isinstance(each, Wrapped) and each.kind == "planned" for each in things)
