"""From a project to its training script: run it in the mind, decide, and run it again with what was decided."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from autodist import catalog, optimizers, randomness
from autodist.analyze.assembling import assembled
from autodist.analyze.batch_sizes import batch_size_sites, reckoned_by, shard_sites
from autodist.analyze.evaluation import with_shared_evaluations
from autodist.analyze.handmade import (
    along_sequence,
    batch_draws,
    has_no_batches,
    made_elsewhere,
    origins_of,
    read_ahead,
    through_time,
)
from autodist.analyze.launched import is_distributed, seeds_by_rank
from autodist.analyze.losses import doubled, doubts, gathered_rows, sizes_of_all, whole_losses, without_sums
from autodist.analyze.measured import relied_on, unread, with_measured
from autodist.analyze.modules import reached, uncovered
from autodist.analyze.picked import steps_on_parts
from autodist.analyze.reductions import losses, needed, placed, reduced, shared, terms
from autodist.analyze.refusals import meeting, refusals_of, unfinished, unshared_output
from autodist.borrowed import borrowed, imported_names
from autodist.config import Config, Evaluation, Strategy
from autodist.files.naming import rank_zero_statements
from autodist.fsdp import folders, meta, sharding, shards, weights
from autodist.interpreter import Interpreter, Plan, Runs, Unfinished
from autodist.losses import by_turn, untaken, wholes
from autodist.models import moved_too_late, placed_when_wrapped, trained_models, wrap_plan
from autodist.program import Operation, Region, closure
from autodist.project import Project
from autodist.reduction import Reduction
from autodist.rule import Severity
from autodist.script import Concern, TrainingScript, Weighed
from autodist.solve.losses import ALONG, Losses
from autodist.solve.parameters import LAYERS
from autodist.solve.passes import PASSES, run_in
from autodist.solve.shares import joined_in_full
from autodist.solve.steps import LEARNED, steps_of
from autodist.source import Source, shortened
from autodist.values import Object

Lying: TypeAlias = Callable[..., Losses] | None
"""How losses lie before anything is weighed, joined or gathered for them."""


def analyze(project: Project, config: Config) -> TrainingScript:
    """The semantic model of a project."""
    facts = catalog.load(config.catalog, config.operations)
    script = _read(project, config, facts)
    if config.measured and not script.distributed:
        return with_measured(script, project, config, lambda told: _read(project, config, told))
    return script


def as_distributed(project: Project, config: Config) -> Interpreter:
    """A run of a project that distributes itself, each rank with its own share of what trains."""
    runs = Runs(project, catalog.load(config.catalog, config.operations), placed)
    first = runs(Plan())
    trained = {origin.key for origin in origins_of(first) if isinstance(origin, Object)}
    return first.under(Plan(sharded=shard_sites(first, trained)))


def _read(project: Project, config: Config, facts: catalog.Catalog) -> TrainingScript:
    """The semantic model, as far as these facts tell."""
    try:
        return _analyzed(project, config, facts, Runs(project, facts, placed))
    except Unfinished as end:
        concern = unfinished(end.run, config.strategy)
        return TrainingScript(project, end.run.values, concerns=(concern,), distributed=is_distributed(end.run))


def _analyzed(project: Project, config: Config, facts: catalog.Catalog, again: Runs) -> TrainingScript:
    """The semantic model of a project that can be followed to its end."""
    known = Plan(inputs=_derived(project, again))
    first = again(known)
    if first.promoted:
        known = replace(known, modules=frozenset(first.promoted))
        first = again(known)
    if not is_distributed(first) and (held := read_ahead(first)):
        ahead = again(replace(known, held=held))
        if batch_draws(ahead) or steps_on_parts(first) is not None:  # steps pick their batches of them
            first, known = ahead, ahead.plan
    avoided = {} if is_distributed(first) else untaken.untaken(first)
    script = _without(avoided, project, config, facts, again, first, known)
    if not script.trains and "AD906" in {concern.code for concern in script.concerns}:
        more = untaken.untaken(first, settings=True)
        if more.keys() > avoided.keys():
            return _without(more, project, config, facts, again, first, known)
    return script


def _derived(project: Project, again: Runs) -> frozenset[int]:
    """The calls that make tensors by which losses are derived, and which are data like any other."""
    asked = any("requires_grad" in source.text for source in project.sources) and again.traced.complete
    return frozenset(id(each.node) for each in steps_of(again.traced).derived) if asked else frozenset()


def _without(
    avoided: dict[ast.expr, tuple[Source, ast.expr]],
    project: Project,
    config: Config,
    facts: catalog.Catalog,
    again: Runs,
    first: Interpreter,
    known: Plan,
) -> TrainingScript:
    """The semantic model, where training is taken not to come to some operations."""
    if not avoided:
        return _chosen(project, config, facts, again, first, known)
    known = replace(known, untaken=frozenset(avoided))
    first = again(known)
    script = _chosen(project, config, facts, again, first, known)
    told = untaken.concerns(avoided, first) if script.trains else ()
    return replace(script, concerns=(*script.concerns, *told))


def _chosen(
    project: Project, config: Config, facts: catalog.Catalog, again: Runs, first: Interpreter, known: Plan
) -> TrainingScript:
    """The semantic model, with the rows of all ranks where losses compare them and that makes them exact."""

    def gathering(nodes: frozenset[ast.expr], draws: frozenset[int] | None = None) -> Interpreter:
        return again(replace(known, gathered=nodes, draws=draws))

    def modelled(rows: tuple[Reduction, ...]) -> tuple[TrainingScript, Interpreter, Lying]:
        start = gathering(_nodes(rows)) if rows else first
        return _modelled(project, config, facts, again, start, rows)

    script, run, lying = modelled(())
    if run is first or is_distributed(first) or lying is None:
        return script
    refused: TrainingScript | None = None
    for assumes in (True, False):  # that what is not known computes each sample apart from the others
        lost = lying(assumes=assumes)
        unsettled = _unsettled(script, run, lost)
        if not unsettled:
            break
        met, rows = lost.met_at(), gathered_rows(run, again.program, lost, unsettled)
        if rows and not any(first.is_padded(each.node) for each in rows):  # to the longest of a rank's own
            other, gathered, _ = modelled(tuple(rows))
            if (twice := doubled(rows, again.program, lying(assumes=assumes))) is not None:
                other = TrainingScript(project, first.values, concerns=(twice,))
            refused = refused or (None if other.trains else other)
            parts = met is not None and losses(again.program, gathered, gathered.plan).met_at() is None
            fewer = len(_warned(script)) - len(_warned(other))  # what is only not known is gathered where that tells
            if other.trains >= script.trains and (parts or fewer >= (not assumes)):
                script, run = other, gathered
    if not (script.trains and _warned(script)):
        return script
    left = losses(again.program, run, run.plan)
    met = left.met_at()
    if met is None or not isinstance(met.node, ast.expr):
        return script
    inside = any(getattr(each.function, "name", "") in PASSES for each in met.region.around())
    given = next((each for each in met.inputs if each.operations), None)  # behind the equation of an einsum
    sizes = left.placements.size(given) if given is not None else None
    matrix = sizes is not None and len(sizes) < 3  # of the samples' own, and none that is computed of each
    along = getattr(left.placements.of.get(met), "reason", "") in ALONG or not matrix
    concern = meeting(met.source, met.node, along=inside and along)
    return refused or TrainingScript(project, first.values, concerns=(concern,))


def _warned(script: TrainingScript) -> set[ast.AST]:
    """What makes losses others than those of one process."""
    return {concern.node for concern in script.concerns if concern.code == "AD602"}


def _unsettled(script: TrainingScript, run: Interpreter, lost: Losses) -> set[ast.AST]:
    """The backward passes of losses that are not those of one process."""
    named, backward = _warned(script), run.of("backward")
    of = {e.node: {e.node, *lost.made_of(e.node)} for e in backward}
    return {node for node, made in of.items() if named & made or lost.is_lost_at(named, node)}


def _opaque(losses: Losses, measured: Container[ast.AST]) -> Iterator[Concern]:
    """What losses are computed by that may relate the samples of a batch, for all that is known of it and was
    ``measured``. Of what libraries compute inside models it is relied on that they leave samples apart."""
    unknown = (op for op in losses.assumed & losses.steps.differentiated if op.name not in GIVEN_BY_MODELS)
    unknown = (op for op in unknown if op.owner is None and any(map(_is_of_model, op.given)))
    told = (op for op in sorted(unknown, key=lambda op: op.number) if not _is_in_model(op.region))
    for op in {each.node: each for each in told if each.node not in measured}.values():
        code = shortened(op.source.code(op.node)) if isinstance(op.node, ast.expr) else op.name
        message = (
            f"cannot tell whether {code} computes each sample of a batch apart from the others: where it does not, "
            "results differ from those of one process; where it does, a line in [tool.autodist.operations] says so"
        )
        yield Concern("AD602", op.source, op.node, message, Severity.WARNING)


GIVEN_BY_MODELS = ("call", "getitem", "iterate")
"""The names of what modules of unknown libraries compute, and of the fields of that."""


def _is_of_model(operation: Operation) -> bool:
    """Whether models have computed it."""
    above = closure([operation], lambda op: op.given)
    return any(getattr(each.owner, "roles", frozenset()) & LAYERS or each.name.endswith(LEARNED) for each in above)


def _is_in_model(inner: Region) -> bool:
    """Whether a region is part of a forward pass of a module that has layers, as a loss of the project has none, or
    lays samples together."""
    if any(region.kind in ("read", "collate", "worker") for region in inner.around()):
        return True
    modules = [module for region in inner.around() for module in run_in(region)]
    return any(
        getattr(each, "roles", frozenset()) & LAYERS
        for one in modules
        for value in one.contents()
        for each in value.things
    )


def _whole_losses(again: Runs, run: Interpreter, plan: Plan) -> Losses:
    """How losses lie under a plan, once means are weighed and sums joined."""
    return _settled(again, run, plan)[0]


def _settled(again: Runs, run: Interpreter, plan: Plan) -> tuple[Losses, bool]:
    """The same, once sums are multiplied that are terms of them as well, and whether any of that is done."""
    plan = replace(plan, terms=_nodes(terms(again.program, run, plan)))
    lying = partial(losses, again.program, run)
    even, joined, beside = whole_losses(again, run, partial(lying, plan))
    plan = replace(plan, weighed=_nodes(even), joined=_nodes((*joined, *beside)))
    return lying(plan), bool(plan.terms or even)


def _of_features(sizes: frozenset[ast.expr], lying: Callable[[frozenset[ast.expr]], Losses]) -> frozenset[ast.expr]:
    """Those of some sizes that are written as numbers, as large as a batch by chance: `torch.ones(8, 4)` of eight
    features, without which fewer losses get lost."""
    written = sorted((each for each in sizes if isinstance(each, ast.Constant)), key=lambda each: each.lineno)
    kept, fewest = sizes, _lost_losses(lying(sizes)) if written else 0
    for node in written:
        if (lost := _lost_losses(lying(kept - {node}))) < fewest:
            kept, fewest = kept - {node}, lost
    return sizes - kept


def _lost_losses(losses: Losses) -> int:
    return sum(1 for _ in losses.lost_at(certain=False))


def _nodes(reductions: Iterable[Reduction | Weighed]) -> frozenset[ast.expr]:
    return frozenset(each.node for each in reductions)


def _modelled(
    project: Project,
    config: Config,
    facts: catalog.Catalog,
    again: Runs,
    first: Interpreter,
    paired: tuple[Reduction, ...],
) -> tuple[TrainingScript, Interpreter, Lying]:
    """The model of a project, of which the rows that losses compare are gathered, the run that it was read off, and
    how losses lay."""
    start = first.plan
    known, pairs = Plan(modules=start.modules, inputs=start.inputs, held=start.held), _nodes(paired)
    known = replace(known, untaken=start.untaken)
    whole = None
    moving = along_sequence(first) or through_time(first)
    if moving is not None or has_no_batches(first) or made_elsewhere(first):
        whole = wholes.find(first, shared(again.program, first), partial(_whole_losses, again, first), known)
        if whole is not None and moving is None and not has_no_batches(first):
            whole = whole if whole.site is None and wholes.are_of_steps(whole, first) else None
    refused = list(refusals_of(first, config.strategy, whole, moving))
    fsdp = config.strategy.shards
    turns = by_turn.Turns()
    seen = first
    models = [] if refused else trained_models(first)
    stuck = refused or list(uncovered(first, models))
    answered = any("environment" in each.message for each in stuck)
    if {each.code for each in stuck} in ({"AD902"}, {"AD904"}) and not (answered or is_distributed(first)):
        turns = by_turn.find(partial(_settled, again, first), known, first, fsdp) or turns
    if (site := turns.site) is not None and "AD902" in {each.code for each in refused}:
        refused = [Concern("AD902", site.source, site.node, turns.reason, Severity.REFUSAL)]
    if turns.nodes:
        whole, refused, seen = None, [], again(replace(known, turns=turns.nodes, even=turns.even))
    if refused:
        concerns = tuple(refused)
        return TrainingScript(project, first.values, concerns=concerns, distributed=is_distributed(first)), first, None
    if turns.nodes:
        models = by_turn.averaged_by_hand(trained_models(seen), seen)
    if fsdp:
        models = sharding.sharded(models, first)
    refused = list(uncovered(seen, models))
    if refused:
        return TrainingScript(project, first.values, concerns=tuple(refused)), first, None
    trained = {origin.key for origin in origins_of(first) if isinstance(origin, Object)}
    drawn = not trained and whole is None and not turns.nodes and not seeds_by_rank(first)
    draws = frozenset(id(draw.node) for draw in batch_draws(first)) if drawn else frozenset()
    plan = replace(known, sharded=shard_sites(first, trained), draws=draws, gathered=pairs, bare=fsdp)
    plan = replace(plan, turns=turns.nodes, even=turns.even)
    if whole is not None:
        plan = replace(plan, wholes=whole.nodes, columns=whole.columns, counts=whole.counts, batches=whole.batches)
    dropped = frozenset(s.node for m in models for s in (*m.dropped, *(m.data_parallel if fsdp else ())))
    dropped |= {e.node for e in first.events if e.kind == "wrap" and e.detail.const == "fully_sharded"}
    plan = replace(plan, dropped=dropped)
    by_hand = is_distributed(first)
    models, second = reached(models, first, lambda those: again(replace(plan, wraps={} if fsdp else wrap_plan(those))))
    plan = second.plan
    if randomness.sees_all(second):  # as each rank does, its statistics are those of all
        models = [replace(model, batch_norm=False) for model in models]
    late = () if fsdp and not by_hand else tuple(moved_too_late((model.object for model in models), second))
    if late and not by_hand:
        models, late = placed_when_wrapped(models, second)
    if late and not by_hand:
        return TrainingScript(project, first.values, concerns=late), first, None
    if (concern := unshared_output(second)) is not None:
        return TrainingScript(project, first.values, concerns=(concern,)), first, None
    summed = () if is_distributed(second) else terms(again.program, second, plan)
    if summed:
        plan = replace(plan, terms=_nodes(summed))
        second = again(plan)
    batch_sizes = batch_size_sites(second, plan)
    divided = frozenset(site.node for site in batch_sizes if isinstance(site.node, ast.expr))
    whole_sizes = sizes_of_all(divided, pairs, again.program, second) if pairs else frozenset[ast.expr]()
    whole_sizes |= _of_features(
        divided - whole_sizes, lambda sizes: losses(again.program, second, replace(plan, divided=sizes))
    )
    batch_sizes = [site for site in batch_sizes if site.node not in whole_sizes]
    divided -= whole_sizes
    beside = frozenset(node for _, node in joined_in_full(again.program, second.placements))
    plan = replace(plan, divided=divided, beside=beside)
    held = shards.guarded_parameters(second, models, rank_zero_statements(second)) if fsdp else []
    reckoned = [] if is_distributed(second) else reckoned_by(second)
    single = frozenset(site.node for site, _ in (*held, *reckoned) if isinstance(site.node, ast.expr))
    lying = partial(losses, again.program, second, replace(plan, reduced=single))
    plan = replace(plan, reduced=single)
    second, before, _ = reduced(again, plan, second, training=True)
    plan = replace(plan, reduced=plan.reduced | {each.node for each in before})
    second = again(plan)
    lying_so = partial(losses, again.program, second, plan)
    even, joined, numbers = ([], (), ()) if by_hand else whole_losses(again, second, lying_so)
    plan = replace(plan, weighed=_nodes(even), joined=_nodes(joined), reduced=plan.reduced | _nodes(numbers))
    early, before = before, needed(before, again.program, second, plan)
    plan = replace(plan, reduced=plan.reduced - {each.node for each in early if each not in before})
    run, reductions, leftover = reduced(again, plan, again(plan))
    reductions = [*before, *reductions]
    made_global = {place.node for place in reductions}
    even = [each for each in even if not (isinstance(each.node, ast.BinOp) and each.node.right in made_global)]
    judged = losses(again.program, run, run.plan)
    script = assembled(project, first, run, models, trained, draws, batch_sizes, reductions, leftover, held, judged)
    script = replace(script, weighed=tuple(even), joined=joined, reductions=(*script.reductions, *numbers))
    script = replace(script, gathered=paired, terms=summed, reckoned=tuple(reckoned))
    script = replace(script, concerns=(*script.concerns, *late))
    opaque = () if by_hand or not script.trains else _opaque(judged, facts.measured)
    told = (*script.concerns, *relied_on(judged, facts), *opaque)
    script = replace(script, concerns=told, unread=frozenset(unread(judged)))
    script = replace(script, concerns=(*script.concerns, *doubts(run, judged, script.concerns)))
    if config.strategy is Strategy.ZERO:
        parted, states = optimizers.parted(run, script.models, script.guards)
        script = replace(script, parted=tuple(parted), optimizer_states=tuple(states))
    if config.meta_device:
        made = meta.built(run, list(script.models))
        script = replace(script, models=tuple(made), concerns=(*script.concerns, *meta.concerns(run, made)))
    if config.strategy.shards and not config.reshard_after_forward:
        penalties = tuple(weights.left_whole(run, list(script.models)))
        script = replace(script, concerns=(*script.concerns, *penalties))
    if config.folders:
        option = "--async-checkpoints" if config.async_checkpoints else "--sharded-checkpoints"
        refused = [*folders.folder_concerns(run, script.shards, option)]
        refused += folders.async_concerns(run, script.shards) if config.async_checkpoints else ()
        script = replace(script, concerns=(*script.concerns, *refused))
    uses = borrowed(project, facts.equivalents)
    script = without_sums(replace(script, borrowed=uses, borrowed_names=imported_names(project)))
    if config.evaluation is not Evaluation.WHOLE and not by_hand:
        script = with_shared_evaluations(script, run, again.program, trained, config)
    return script, run, lying
