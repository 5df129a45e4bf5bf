"""From a project to its training script: run it in the mind, decide, and run it again with what was decided."""

from __future__ import annotations

import ast
import builtins
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from autodist import (
    averaging,
    batchwise,
    catalog,
    collation,
    escapes,
    hooks,
    meta,
    naming,
    optimizers,
    pairing,
    picking,
    previews,
    randomness,
    regions,
    resizing,
    rowwise,
    searching,
    sharding,
    shards,
    tensors,
    turns,
    unbatched,
    unshardable,
    unwraps,
    waiting,
    weighing,
    weights,
    while_importing,
    wholes,
)
from autodist.borrowed import borrowed, departed, imported_names
from autodist.collation import Rows
from autodist.config import Config, Strategy
from autodist.frameworks import owned
from autodist.imports import below_imports, is_preface
from autodist.interpreter import Event, Interpreter, Loop, Plan
from autodist.launchers import launcher, without
from autodist.models import (
    UNSEEN,
    is_main_guard,
    optimized_by,
    parts,
    trained_models,
    unseen_model,
    unwrapped,
    wrap_plan,
)
from autodist.picking import picks, takes_first
from autodist.project import Project
from autodist.rowwise import ONE
from autodist.rule import Severity
from autodist.script import (
    Concern,
    Epoch,
    Loader,
    Model,
    Reduction,
    Setup,
    Shards,
    Site,
    TrainingScript,
    Unordered,
    Weighed,
)
from autodist.sharding import keys, members
from autodist.source import Source, argument, last_name, shortened
from autodist.spread import COLUMNS, COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.values import (
    NOTHING,
    Amplified,
    Draw,
    External,
    Function,
    Index,
    Items,
    Object,
    Path_,
    Scope,
    Table,
    Value,
    Wrapped,
    drawn_from,
    is_clock,
    of,
)

ROUNDS = 6
WHOLE = ("whole", "dealt_out")
SEQUENCES_FIRST = ("LSTM", "GRU", "RNN", "Transformer", "MultiheadAttention")
KEYS = frozenset(["init_hidden", "initHidden", "init_state", "size", "Size"])
SAMPLING = frozenset(["sample", "rsample"])
SHAPES = frozenset(
    "view reshape randn zeros ones rand full empty expand repeat randint normal init_hidden new_zeros new_ones "
    "new_full Tensor FloatTensor LongTensor fill_ eye resize resize_ uniform split chunk new_empty randperm "
    "permutation multinomial binomial standard_normal".split()
)


def analyze(project: Project, config: Config) -> TrainingScript:
    """The semantic model of a project."""
    facts = catalog.load(config.catalog)

    def again(plan: Plan) -> Interpreter:
        return Interpreter(project, facts, plan).run()

    first = again(Plan())
    modules = frozenset(first.promoted)
    if modules:
        first = again(Plan(modules=modules))

    def gathering(nodes: frozenset[ast.expr], draws: frozenset[int] | None = None) -> Interpreter:
        return again(Plan(modules=modules, gathered=nodes, draws=draws))

    def modelled(rows: tuple[Reduction, ...]) -> tuple[TrainingScript, Interpreter]:
        script, run = _modelled(project, config, facts, gathering(_nodes(rows)) if rows else first, rows)
        opaque = () if _is_distributed(first) or not script.trains else map(_unfollowed, _opaque(run))
        return replace(script, concerns=(*script.concerns, *opaque)), run

    paired = () if _is_distributed(first) else pairing.gathered(first, gathering)
    script, run = modelled(paired)
    named, backward = _warned(script), run.of("backward")
    unsettled = frozenset(event.node for event in backward if not _is_settled(event, run) or event.node in named)
    if run is first or _is_distributed(first) or not (unsettled or named):
        return script
    planned = partial(gathering, draws=run.plan.draws)
    related: tuple[Reduction, ...] = ()
    if not paired and unsettled:  # whatever else relates the samples of a batch, also of one that is made by hand
        related = pairing.gathered(planned(frozenset()), planned, unsettled)
        script = modelled(related)[0] if related else script
    if script.trains and _warned(script):
        concerned = unsettled | {event.node for event in backward if named & _computed_from(event, run)}
        outputs = pairing.outputs_gathered(planned(frozenset()), planned, concerned)
        other = modelled(outputs)[0] if outputs else script
        if other.trains and len(_warned(other)) < len(_warned(script)):
            return other
    if related or not unsettled:
        return script
    refused = next((_pairs(event) for event in run.of("backward") if event.value.spread is CROSS), None)
    return TrainingScript(project, first.values, concerns=(refused,)) if refused is not None else script


def _warned(script: TrainingScript) -> set[ast.AST]:
    """What makes losses others than those of one process."""
    return {concern.node for concern in script.concerns if concern.code == "AD602"}


def _opaque(run: Interpreter) -> list[Event]:
    """What losses are computed by that may relate the samples of a batch, for all that is known of it."""
    calls = {event.node: event for event in run.of("unfollowed") if event.node not in run.plan.gathered}
    made = {node for loss in run.of("backward") for node in _computed_from(loss, run)} if calls else set()
    return [event for node, event in calls.items() if node in made]


def _unfollowed(event: Event) -> Concern:
    code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else ""
    message = (
        f"cannot tell whether {code} computes each sample of a batch apart from the others: where it does not, results "
        "differ from those of one process"
    )
    return Concern("AD602", event.source, event.node, message, Severity.WARNING)


def _computed_from(event: Event, run: Interpreter) -> set[ast.AST]:
    """What a loss is made of, and what mixed the rows that it is computed from."""
    made = escapes.roots(event.node, run, set()) if isinstance(event.node, ast.expr) else set()
    return {*ast.walk(event.node), *made, *(each.node for each in rowwise.mixings(event.value))}


def _is_settled(event: Event, run: Interpreter) -> bool:
    """Whether a loss becomes that of one process when gradients are averaged."""
    return batchwise.is_settled(event, run) and not picking.takes_first(event.value)


def _pairs(event: Event) -> Concern:
    message = (
        "the loss pairs every sample of the batch with every other one (in-batch negatives): a rank sees only its own "
        "share, so the loss would change; gather the embeddings by hand"
    )
    return Concern("AD906", event.source, event.node, message, Severity.REFUSAL)


def _nodes(reductions: Iterable[Reduction]) -> frozenset[ast.expr]:
    return frozenset(each.node for each in reductions)


def _modelled(
    project: Project, config: Config, facts: catalog.Catalog, first: Interpreter, paired: tuple[Reduction, ...]
) -> tuple[TrainingScript, Interpreter]:
    """The model of a project, of which the rows that losses compare are gathered, and the run that it was read off."""

    def again(plan: Plan) -> Interpreter:
        return Interpreter(project, facts, plan).run()

    modules, pairs = first.plan.modules, _nodes(paired)
    whole = None
    moving = _along_sequence(first) or _through_time(first, again, modules)
    if moving is not None or _has_no_batches(first):
        whole = wholes.find(again, Plan(modules=modules), moving is not None)
    refused = list(_refusals(first, config.strategy, whole, moving))
    if refused:
        concerns = tuple(refused)
        return TrainingScript(project, first.values, concerns=concerns, distributed=_is_distributed(first)), first
    models = trained_models(first)
    fsdp = config.strategy.shards
    if fsdp:
        models = sharding.sharded(models, first)
    refused = list(_uncovered(first, models))
    if refused:
        return TrainingScript(project, first.values, concerns=tuple(refused)), first
    trained = {origin.key for origin in _origins(first) if isinstance(origin, Object)}
    drawn = not trained and whole is None and not _seeds_by_rank(first)
    draws = frozenset(id(draw.node) for draw in _batch_draws(first)) if drawn else frozenset()
    plan = Plan(sharded=_shard_sites(first, trained), draws=draws, modules=modules, gathered=pairs, bare=fsdp)
    if whole is not None:
        plan = replace(plan, wholes=whole.nodes, columns=whole.columns, counts=whole.counts, batches=whole.batches)
    dropped = frozenset(s.node for m in models for s in (*m.dropped, *(m.data_parallel if fsdp else ())))
    dropped |= {e.node for e in first.events if e.kind == "wrap" and e.detail.const == "fully_sharded"}
    plan = replace(plan, wraps={} if fsdp else wrap_plan(models), dropped=dropped)
    second = again(plan)
    batch_sizes = _batch_sizes(second, plan)
    plan = replace(plan, divided=frozenset(site.node for site in batch_sizes if isinstance(site.node, ast.expr)))
    while pairs and (kept := plan.divided & pairing.wanted_whole(again(plan))):
        batch_sizes = [site for site in batch_sizes if site.node not in kept]
        plan = replace(plan, divided=plan.divided - kept)
    even = [] if _is_distributed(second) else list(weighing.weighed(second, _guarded(second)))
    held = shards.guarded_parameters(second, models, _guarded(second)) if fsdp else []
    plan = replace(plan, reduced=frozenset(site.node for site, _ in held))

    before = [] if _is_distributed(second) else _summed_up_before(again, plan, second)
    plan = replace(plan, settled=_settled(before))
    plan, third, even, joined = _whole_losses(again, plan, even, _is_distributed(second))
    run, reductions, leftover = _reduce(project, facts, plan, third, before)
    script = _assemble(project, first, run, models, trained, draws, batch_sizes, reductions, leftover, held)
    script = replace(script, weighed=tuple(even), joined=joined, gathered=pairing.in_training(paired, run))
    if (twice := pairing.doubled(run)) is not None:
        message = (
            "the loss compares the samples of a batch, and is computed here of all data, too, gradients on: evaluate "
            "below `with torch.no_grad():`"
        )
        concern = Concern("AD906", twice.source, twice.node, message, Severity.REFUSAL)
        return TrainingScript(project, first.values, concerns=(concern,)), first
    if config.strategy is Strategy.ZERO:
        parted, states = optimizers.parted(run, script.models, script.guards)
        script = replace(script, parted=tuple(parted), optimizer_states=tuple(states))
    if config.meta_device:
        made = meta.built(run, list(script.models))
        script = replace(script, models=tuple(made), concerns=(*script.concerns, *meta.concerns(run, made)))
    if config.strategy.shards and not config.reshard_after_forward:
        penalties = tuple(weights.left_whole(run, list(script.models)))
        script = replace(script, concerns=(*script.concerns, *penalties))
    if config.sharded_checkpoints:
        folders = tuple(shards.folder_concerns(run, script.shards))
        script = replace(script, concerns=(*script.concerns, *folders))
    uses = borrowed(project, facts.equivalents)
    return _without(replace(script, borrowed=uses, borrowed_names=imported_names(project))), run


def _whole_losses(
    run: Callable[[Plan], Interpreter], plan: Plan, even: list[Weighed], distributed: bool
) -> tuple[Plan, Interpreter, list[Weighed], tuple[Reduction, ...]]:
    """What makes losses those of the whole batch that no mean over the ranks is: means that are weighed, sums and
    means that are joined. Nothing is weighed in vain."""
    tried = {each.node for each in even}

    def counted(plan: Plan) -> Interpreter:
        return _counted(run(plan), run, plan)

    while True:
        plan = replace(plan, weighed=frozenset(each.node for each in even), joined=frozenset())
        current = run(plan)
        guards = _guarded(current)
        joined = () if distributed else batchwise.joined(_counted(current, run, plan), counted, plan, guards)
        if joined:
            plan = replace(plan, joined=frozenset(each.node for each in joined))
            current = run(plan)
            guards = _guarded(current)
        more = [] if distributed else [w for w in weighing.weighed(current, guards) if w.node not in tried]
        if more:  # by weights that have become those of all ranks
            tried |= {each.node for each in more}
            even = [*even, *more]
            continue
        settled = weighing.settles(_counted(current, run, plan)) if even else frozenset()
        if all(each.node in settled for each in even):
            return plan, current, even, joined
        even = [each for each in even if each.node in settled]


def _counted(current: Interpreter, run: Callable[[Plan], Interpreter], plan: Plan) -> Interpreter:
    """The analysis of ``plan`` where losses that are divided by the size of the batch are by that of all ranks."""
    sizes = frozenset(e.node for e in current.of("statistic") if e.value.spread is COUNT)
    return run(replace(plan, reduced=plan.reduced | sizes)) if sizes else current


def _without(script: TrainingScript) -> TrainingScript:
    """What is said about code that goes is not worth saying."""
    gone = departed(script.borrowed)
    if not gone:
        return script
    return replace(
        script,
        unwraps=tuple(site for site in script.unwraps if site.node not in gone and not _clips(site)),
        reductions=tuple(reduction for reduction in script.reductions if reduction.node not in gone),
    )


def _clips(site: Site) -> bool:
    """`model.clip_grad_norm_(1.0)`, of a wrapper that goes"""
    parent = site.source.parents.get(site.node)
    return isinstance(parent, ast.Attribute) and parent.attr == "clip_grad_norm_"


def _summed_up_before(again: Callable[[Plan], Interpreter], plan: Plan, run: Interpreter) -> list[escapes.Placed]:
    """The sums to be taken over all ranks before training, because losses are computed from them."""
    found: dict[ast.expr, escapes.Placed] = {}
    for _ in range(ROUNDS):
        fresh = {place.node: place for place in escapes.summed_up_before(run) if place.node not in found}
        if not fresh:
            break
        found |= fresh
        run = again(replace(plan, settled=_settled(found.values())))
    return list(found.values())


def _settled(reductions: Iterable[escapes.Placed]) -> dict[ast.stmt, tuple[ast.expr, ...]]:
    """The accumulators that are made global after each loop."""
    settled: dict[ast.stmt, tuple[ast.expr, ...]] = {}
    for place in reductions:
        if place.after is not None:
            settled[place.after] = (*settled.get(place.after, ()), place.node)
    return settled


def _reduce(
    project: Project, facts: catalog.Catalog, plan: Plan, run: Interpreter, before: list[escapes.Placed]
) -> tuple[Interpreter, list[escapes.Placed], list[escapes.Placed]]:
    """Make escaping values global until none is left that can be, or fewer are where rows are gathered first."""
    found = _reduce_all(project, facts, plan, run, [], before)
    rows = escapes.given_instead(found[2], run)
    if rows:
        other = _reduce_all(project, facts, plan, run, rows, before)
        if len(other[2]) < len(found[2]):
            return other
    return found


def _reduce_all(
    project: Project,
    facts: catalog.Catalog,
    plan: Plan,
    run: Interpreter,
    rows: list[escapes.Placed],
    before: list[escapes.Placed],
) -> tuple[Interpreter, list[escapes.Placed], list[escapes.Placed]]:
    """The analysis with what is made global, beginning with ``rows``, what that is, and what is left. ``before`` is
    global already."""
    reductions = {place.node: place for place in before}
    leftover: list[escapes.Placed] = []
    given = plan.reduced
    for _ in range(ROUNDS):
        placed = rows or escapes.placed(escapes.escapes(run, _guarded(run)), run)
        rows = []
        leftover = [place for place in placed if not _is_reducible(place)]
        placed = [*(escapes.summed_up_before(run, leftover) if leftover else ()), *placed]
        fresh = {p.node: p for p in placed if _is_reducible(p) and p.node not in reductions}
        fresh = _first(fresh, run)
        if not fresh:
            break
        reductions.update(fresh)
        nodes = frozenset(p.node for p in reductions.values() if p.after is None)
        plan = replace(plan, reduced=given | nodes, settled=_settled(reductions.values()))
        run = Interpreter(project, facts, plan).run()
    return run, list(reductions.values()), leftover


def _first(fresh: dict[ast.expr, escapes.Placed], run: Interpreter) -> dict[ast.expr, escapes.Placed]:
    """Those that lie upstream of the others: what they make global may leave nothing to do for the rest."""
    upstream = {
        node: place
        for node, place in fresh.items()
        if place.after is not None or not any(each is node for each in ast.walk(place.event.node))
    }
    chosen = upstream or fresh
    made = {node: escapes.roots(node, run, set()) for node in chosen}
    rows = {node for node, place in chosen.items() if place.spread is ROWS}
    through_lists = {node: escapes.upstream(node, run) if rows else set() for node in chosen}
    kept = {
        origin: node
        for node, place in chosen.items()
        if place.event.kind in ("store", "set_item")
        for _, origin in run.values.get(node, NOTHING).made
    }
    """What is put into a container is read from there by others."""
    settled = {(place.source, ast.unparse(node)) for node, place in chosen.items() if place.after is not None}

    def waits(node: ast.expr) -> bool:
        others, place = chosen.keys() - {node}, chosen[node]
        read = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))
        return (
            bool(made[node] & others)
            or bool(through_lists[node] & rows - {node})  # a loss of rows that lists keep
            or place.after is None
            and any((place.source, ast.unparse(each)) in settled for each in read)  # `cm.sum(1)`, `cm` being reduced
            or any(each in others for each in ast.walk(node))
            or any(kept.get(each, node) is not node for each in made[node])
        )

    return {node: place for node, place in chosen.items() if not waits(node)} or chosen


def _guarded(run: Interpreter) -> list[Site]:
    """The statements that rank 0 alone will run."""
    prepared, alone = regions.preparations(run)
    writes = regions.writes(run, frozenset(site.node for site in (*prepared, *alone)), naming.folders_apart(run))[0]
    return [*alone, *writes]


def _is_reducible(place: escapes.Placed) -> bool:
    return place.spread.is_reducible or place.spread is ROWS


def _uncovered(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Optimizers that train something whose forward pass was not seen: its gradients would stay each rank's own."""
    members = {part.key for model in models for each in (model.object, *model.alternatives) for part in parts(each)}
    stepped = {t for e in run.events if e.kind == "step" for t in e.value.objects("optimizer")}
    for optimizer in sorted(stepped, key=lambda o: (str(o.source.path), o.node.lineno)):
        missing = [m for m in optimized_by(optimizer) if not any(part.key in members for part in parts(m))]
        if missing or not models:
            message = (
                "trains a model whose forward pass cannot be followed, so that its gradients could "
                "not be averaged; convert this part by hand"
            )
            site: Site = Site(optimizer.source, optimizer.node)
            if not missing and (unseen := unseen_model(optimizer, run)) is not None:
                site, reason = unseen
                message = f"trains a model that cannot be followed: {reason}"
            yield Concern("AD904", site.source, site.node, message, Severity.REFUSAL)
            return


def _layer_tests(run: Interpreter, models: list[Model]) -> Iterator[Site]:
    """Where training asks for layers of batch normalisation, which are of another class once they are synchronised."""
    if not any(model.batch_norm and model.wrapping is not None for model in models):
        return
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    steps = [event for event in run.events if any(loop.node in training for loop in event.loops)]
    places: set[ast.AST] = {*training, *(call.function.node for event in steps for call in event.calls)}
    places |= {node for model in models if model.wrapping is not None for node in _later_methods(model, run)}
    for node, value in run.values.items():
        named = any(isinstance(t, External) and t.name.startswith("torch.nn.BatchNorm") for t in value.things)
        source = run.sources.get(node)
        if not named or source is None:
            continue
        parent = source.parents.get(node)
        outer = node if isinstance(parent, ast.Call) else parent
        call = source.parents.get(outer) if outer is not None else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "isinstance" and outer in call.args[1:]:
            if isinstance(outer, ast.expr) and not places.isdisjoint(source.ancestors(call)):
                yield Site(source, outer)


def _later_methods(model: Model, run: Interpreter) -> Iterator[ast.AST]:
    """The methods of a model that are called once it is wrapped or sharded, as for the parameters of an optimizer."""
    assert model.wrapping is not None
    place = frozenset([model.wrapping.statement])
    made = max((event.order for event in run.events if regions.within(event, place)), default=len(run.events))
    for event in run.of("model_method"):
        module = next((t for t in unwrapped(event.value) if isinstance(t, Object) and t.key == model.object.key), None)
        call = event.node
        if event.order <= made or module is None or module.cls is None or not isinstance(call, ast.Call):
            continue
        found = module.cls.find(call.func.attr) if isinstance(call.func, ast.Attribute) else None
        yield from (t.node for t in found[1].things if isinstance(t, Function)) if found is not None else ()


def _seeds_by_rank(run: Interpreter) -> bool:
    """Whether a distributed script seeds its ranks apart, so that each draws batches of its own."""
    return _is_distributed(run) and any(event.value.spread is Spread.RANK for event in run.of("seed"))


def _unwrapped_uses(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Training steps that the planned wrapper does not reach: their gradients would silently stay each rank's own."""
    if run.plan.bare:
        return
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    steps = [e for e in run.of("forward") if e.grad and any(loop.node in training for loop in e.loops)]
    steps = [e for e in steps if not _only_attacks(e, run)]
    for model in models:
        if model.wrapping is None or model.bypassed is not None or model.data_parallel:
            continue
        ours = {each.key for each in (model.object, *model.alternatives)}
        bare = [e for e in steps if any(isinstance(t, Object) and t.key in ours for t in e.value.things)]
        around = [e for e in bare if any(isinstance(t, Wrapped) for t in e.value.things)]
        if len(bare) > len(around):
            uses = [event for event in bare if event not in around]
            message = "cannot see where to wrap this model so that its training steps go through the wrapper"
            yield Concern("AD904", uses[0].source, uses[0].node, message, Severity.REFUSAL)


def _only_attacks(event: Event, run: Interpreter) -> bool:
    """Whether a function asks a model for gradients of what it is given, as an attack on it does, and keeps nothing of
    what the model says: no gradient of a parameter comes from there."""
    asks = any(each.function is event.function for each in run.of("autograd_grad"))
    if event.function is None or not asks or not event.calls or event.calls[-1].function is not event.function:
        return False
    call, body = event.calls[-1].node, event.function.node
    kept = any(isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) for n in _changed(body))
    learns = any(isinstance(n, ast.Call) and last_name(n.func) == "backward" for n in ast.walk(body))
    result = run.values.get(call, NOTHING) if isinstance(call, ast.expr) else NOTHING
    return call is not None and not (kept or learns or result.models or result.things)


def _changed(body: ast.AST) -> Iterator[ast.expr]:
    """What a function assigns to, numbers of a tensor aside: `x.data += step`."""
    for node in ast.walk(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (
            each
            for each in targets
            if each is not None and not (isinstance(each, ast.Attribute) and each.attr in ("data", "requires_grad"))
        )


def _unreached_norms(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Layers of batch normalisation that a model also keeps in a plain list: SyncBatchNorm takes the place of its
    modules alone, and what the list holds would go on normalising by each rank's own samples."""
    if _is_distributed(run):
        return
    for model in models:
        if not model.batch_norm or model.wrapped or model.wrapping is None and not model.data_parallel:
            continue
        for part in (each for one in (model.object, *model.alternatives) for each in parts(one)):
            for name, value in part.attributes.items():
                lists = [thing for thing in value.things if isinstance(thing, Items)]
                held = [each for items in lists for each in (*items.parts, items.element)]
                if part.cls is None or not any(True for each in held for _ in each.objects("batch_norm")):
                    continue
                message = (
                    f"keeps layers of batch normalisation in self.{name}, a plain list, where nn.SyncBatchNorm does "
                    "not take their place: make it an nn.ModuleList"
                )
                yield Concern("AD904", part.cls.source, part.cls.node, message, Severity.REFUSAL)
                return


def _is_of_apex(value: Value) -> bool:
    return any(isinstance(t, External) and t.name == "apex.amp.initialize" for t in value.things)


def _differentiated_norms(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Gradients of gradients through batch statistics, of which nn.SyncBatchNorm has none."""
    if _is_distributed(run):
        return
    for event in run.of("autograd_grad"):
        if event.detail.const is not True or not isinstance(event.node, ast.Call) or not event.grad:
            continue
        given = (argument(event.node, "outputs", 0), argument(event.node, "inputs", 1))
        through, before = (
            {key for t in run.values.get(each, NOTHING).models for key in keys(unwrapped(of(t)))} if each else set()
            for each in given
        )
        for model in models:
            if model.batch_norm and not model.wrapped and model.object.key in through - before:
                message = (
                    "trains on a gradient that passes through batch normalisation, and nn.SyncBatchNorm has no second "
                    "derivative: normalise in this model by nn.InstanceNorm or nn.GroupNorm"
                )
                yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
                return


def _penalties_alone(run: Interpreter) -> Iterator[Concern]:
    """Losses that are computed from gradients of a model alone, on which the bias of its last layer has no say."""
    passes = {event.node for event in run.of("forward")}
    grads = {event.node for event in run.of("autograd_grad") if event.detail.const is True}
    for event in run.of("backward") if grads else ():
        loss = event.node.func.value if isinstance(event.node, ast.Call) else None  # type: ignore[attr-defined]
        reached: set[ast.AST] = set()
        pending: list[ast.AST] = [loss] if loss is not None else []
        while pending:  # past the gradients, not into what they are taken of
            node = pending.pop()
            if node not in reached:
                reached.add(node)
                pending += ast.iter_child_nodes(node) if node not in grads else ()
                value = run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
                pending += [made for _, made in value.made] if node not in grads else []
        if reached & grads and passes.isdisjoint(reached):
            message = (
                "trains on a gradient penalty alone, on which a last bias has no say, so that "
                "DistributedDataParallel waits for its gradient: add the penalty to the other loss of the step, or "
                "`0 * out.sum()` of what the model computed to it"
            )
            yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
            return


def _kept_statistics(models: list[Model]) -> Iterator[Concern]:
    """Layers that keep statistics of a rank's samples, and that nn.SyncBatchNorm does not replace."""
    for part in (part for model in models for part in parts(model.object)):
        keeps = part.argument("track_running_stats", 4)
        if part.name.startswith("torch.nn.InstanceNorm") and keeps is not None and keeps.const is True:
            message = (
                f"{part.name.rpartition('.')[2]} keeps running statistics of the samples that it is given: each rank "
                "keeps those of its own ones, and those of rank 0 are saved; leave out track_running_stats"
            )
            yield Concern("AD602", part.source, part.node, message, Severity.WARNING)
            return


def _prefixed(run: Interpreter, models: list[Model]) -> Iterator[Event]:
    """Checkpoints with the keys of `nn.DataParallel` that meet a model which is not wrapped yet: with `strict=False`
    nothing of them would be loaded, in silence."""
    for model in models:
        if not model.data_parallel or not model.moved_later:
            continue
        place = model.moved_later[0].node  # it is wrapped there
        orders = [event.order for event in run.events if event.node is place]
        for event in (*run.of("model_load_state_dict"), *run.of("model_state_dict")):
            held = [t.module for t in event.value.things if isinstance(t, Wrapped)]
            prefixed = any(isinstance(each, Object) and each.key == model.object.key for each in held)
            if prefixed and orders and event.order < min(orders):
                yield event


def _checkpoint(event: Event) -> Site | None:
    """`checkpoint["model"]` of `model.load_state_dict(checkpoint["model"])`: the prefix can be taken from its keys."""
    if event.kind != "model_load_state_dict" or not isinstance(event.node, ast.Call) or not event.node.args:
        return None
    return Site(event.source, event.node.args[0])


def _lost_prefixes(events: list[Event]) -> Iterator[Concern]:
    """The others, which cannot be loaded before the model is wrapped."""
    for event in events:
        if _checkpoint(event) is None:
            message = (
                "nn.DataParallel puts `module.` before the keys of this checkpoint, and the model can only be "
                "wrapped further down: move this line below the one that moves the model to its device"
            )
            yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
            return


def _is_distributed(run: Interpreter) -> bool:
    return bool(run.of("init_process_group"))


def _conditions(run: Interpreter) -> Iterator[ast.If]:
    """The conditions around calls that join a group."""
    for event in run.of("init_process_group"):
        yield from (a for a in event.source.ancestors(event.node) if isinstance(a, ast.If))


def _sometimes_joined(run: Interpreter) -> Site | None:
    """The innermost condition under which the script joins a process group."""
    if any("is_initialized" in ast.unparse(a.test) for a in _conditions(run)):
        return None  # it is joined in one way or another
    for event in run.of("init_process_group"):
        chain = [(event.node, event.source)]
        chain += [(call.node, call.source) for call in reversed(event.calls) if call.node is not None]
        for node, source in chain:
            found: ast.If | None = None
            for ancestor in source.ancestors(node):
                if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    break
                if isinstance(ancestor, ast.If) and not is_main_guard(ancestor):
                    found = ancestor
            if found is not None:
                return Site(source, found)
    return None


def _never_joined(run: Interpreter) -> Iterator[Concern]:
    """A script that is distributed as it stands, but for a switch of its own, `distributed = False`, or for an option
    of which what starts the processes knows nothing: `if args.world_size > 1:`."""
    site = _sometimes_joined(run)
    if site is None or not isinstance(site.node, ast.If):
        return
    test = site.node.test
    stores = [n for n in ast.walk(site.source.tree) if isinstance(n, ast.Name) and n.id == ast.unparse(test)]
    bound = [site.source.statement(n) for n in stores if isinstance(n.ctx, ast.Store)]
    value = bound[0].value if len(bound) == 1 and isinstance(bound[0], ast.Assign) else None
    if isinstance(value, ast.Constant) and value.value in (False, 0, None):
        message = (
            f"{ast.unparse(test)} is {value.value} here, so that each process would train by itself: set it, and the "
            "script is distributed as it stands"
        )
        yield Concern("AD101", site.source, bound[0], message, Severity.WARNING)
    elif not any(LAUNCHED.search(source.text) for source in run.project.sources):
        message = (
            f"joins the other processes where {shortened(ast.unparse(test))} alone, which torchrun does not see to: "
            "started without that option, each process would train by itself"
        )
        yield Concern("AD101", site.source, site.node, message, Severity.WARNING)


LAUNCHED = re.compile(r"WORLD_SIZE|LOCAL_RANK|--local[_-]rank|[\"']RANK[\"']|torchelastic|\bspawn\b")
"""What a script speaks of that asks how it has been started, or starts the processes itself."""


# -------------------------------------------------------------------- refusals


def _has_no_batches(run: Interpreter) -> bool:
    """Whether neither a loader nor what is drawn anew in each step reaches a gradient."""
    backwards = run.of("backward")
    if not backwards or any(event.value.spread is not SAME for event in backwards):
        return False
    if any(isinstance(origin, Object) for origin in _origins(run)):
        return False
    return not _batch_draws(run)


def _refusals(
    run: Interpreter, strategy: Strategy, whole: wholes.Wholes | None, moving: Draw | None
) -> Iterator[Concern]:
    entry = run.project.entry
    top: ast.AST = entry.tree.body[0] if entry.tree.body else entry.tree

    def refuse(code: str, source: Source, node: ast.AST, message: str) -> Concern:
        return Concern(code, source, node, message, Severity.REFUSAL)

    framework = owned(run, strategy)
    if framework is not None:
        yield framework
        return
    if not run.complete:
        yield refuse(
            "AD905", entry, top, "the script is too large to be followed to its end; convert its training part alone"
        )
        return
    backwards = [event for event in run.events if event.kind == "backward"]
    steps = [event for event in run.events if event.kind == "step"]
    for event in steps:
        closure = any(isinstance(t, Function) for t in event.detail.things) or _takes_closure(event)
        if closure:
            yield refuse(
                "AD904",
                event.source,
                event.node,
                (
                    "optimizer.step(closure) evaluates the loss several times on its own; gradients "
                    "cannot be averaged between: use an optimizer without a closure, or convert by hand"
                ),
            )
            return
    if not backwards:
        yield refuse(
            "AD901",
            entry,
            top,
            "cannot see that it trains: no loss.backward() is reached from this script"
            + (" (an environment loop draws no batches)" if _is_environment(run) else ""),
        )
        return
    if not steps:
        event = backwards[0]
        yield refuse(
            "AD904",
            event.source,
            event.node,
            (
                "trains by apex.amp, which is no longer maintained and hides model and optimizer: use torch.amp"
                if any(_is_of_apex(value) for value in run.values.values())
                else "gradients are computed but no optimizer steps: parameters that are updated by hand "
                "cannot be converted; use a torch.optim optimizer"
            ),
        )
        return
    if _is_environment(run):
        event = backwards[0]
        yield refuse(
            "AD902",
            event.source,
            event.node,
            (
                "draws on an environment, which is no data set that could be shared out among ranks; if it only "
                "evaluates there, move that to a script of its own"
            ),
        )
        return
    for event in run.of("parameter_set"):
        yield refuse(
            "AD904",
            event.source,
            event.node,
            (
                "sets parameters to a statistic of the samples within a forward pass: each rank would set its own, and "
                "nothing makes them equal again"
            ),
        )
        return
    for event in backwards:
        if event.value.spread is CROSS and not _is_distributed(run):  # else it is its own affair what it gathers
            yield _pairs(event)
            return
    if (apart := _beside_loaders(run)) is not None:
        draw, step = apart
        message = (
            f"trains on batches that {shortened(draw.source.code(draw.node))} picks, beside those of a loader, which "
            "are shared out: read both with loaders, or move this part to a script of its own"
        )
        yield refuse("AD902", step.source, step.node, message)
        return
    draws = [] if any(isinstance(origin, Object) for origin in _origins(run)) else _batch_draws(run)
    if whole is not None and whole.site is None:
        return
    if moving is not None and not _is_distributed(run):
        message = "reads on in a sequence, piece by piece: the samples of a batch lie along another axis"
        site = Site(moving.source, moving.node)
        if whole is not None and whole.site is not None:
            site, message = whole.site, f"{message}, and cannot be shared out: {whole.reason}"
        yield refuse("AD902", site.source, site.node, message)
        return
    if not any(isinstance(origin, Object) for origin in _origins(run)) and not draws and not _sums_over_ranks(run):
        event = backwards[0]
        if (missing := _undefined(event, run)) is not None:
            yield refuse("AD902", event.source, missing, f"iterates over {missing.id}, which is defined nowhere")
            return
        known = whole is None or whole.reason.startswith(UNSEEN)
        if not known and (iterator := _foreign_iterator(run)) is not None:
            yield refuse("AD902", event.source, event.node, _takes_from(iterator))
            return
        if (optimised := unbatched.optimised(run)) is not None:
            yield refuse("AD902", optimised[0].source, optimised[0].node, optimised[1])
            return
        if whole is not None and whole.site is not None:
            message = (
                "a step trains on tensors that no loader hands out, and a rank cannot take its rows of them: "
                f"{whole.reason}"
            )
            if whole.reason.startswith(UNSEEN):
                message = f"trains a model that cannot be followed: {whole.reason}"
            if whole.reason.endswith(ONE):
                message = f"each step trains on one sample, which cannot be shared out: {whole.reason}"
            yield refuse("AD902", whole.site.source, whole.site.node, message)
            return
        if whole is not None or any(event.value.spread is not SAME for event in backwards):
            return
        if (iterator := _foreign_iterator(run)) is not None:
            yield refuse("AD902", event.source, event.node, _takes_from(iterator))
            return
        if (hidden := _hidden_loader(event, run)) is not None:
            yield hidden
            return
        if (unseen := _unseen_batches(event, run)) is not None:
            yield unseen
            return
        site, message = unbatched.reason(event, run)
        yield refuse("AD902", site.source, site.node, message)


def _sums_over_ranks(run: Interpreter) -> bool:
    """Whether a distributed script trains on the batches of a loader, although its loss is the same on all ranks."""
    loops = [loop.node.iter for event in run.of("backward") for loop in event.loops if isinstance(loop.node, ast.For)]
    return _is_distributed(run) and any(True for each in loops for _ in run.values.get(each, NOTHING).objects("loader"))


def _hidden_loader(backward: Event, run: Interpreter) -> Concern | None:
    """A loop over something that is made from a loader in a way that is not followed."""
    loop = backward.loops[-1] if backward.loops else None
    if loop is None or not isinstance(loop.node, (ast.For, ast.comprehension)):
        return None
    over = loop.node.iter
    value = run.values.get(over, NOTHING)
    inner = [node for node in ast.walk(over) if isinstance(node, ast.expr) and node is not over]
    held = [node for node in inner if any(drawn_from(run.values.get(node, NOTHING)))]
    if any(drawn_from(value)) or not held:
        return None
    name = loop.source.code(held[0])
    message = f"cannot see how the batches of {name} come out of this: write the loop over {name} itself"
    return Concern("AD902", loop.source, over, message, Severity.REFUSAL)


def _unseen_batches(backward: Event, run: Interpreter) -> Concern | None:
    """A training loop over something of which it is not known where it takes its batches from."""
    loop = backward.loops[-1] if backward.loops else None
    if loop is None or not isinstance(loop.node, (ast.For, ast.AsyncFor)):
        return None
    over = loop.node.iter
    things = run.values.get(over, NOTHING).things
    if any(isinstance(thing, (Index, Items, Table)) for thing in things):
        return None  # it counts, or goes through what it has
    message = (
        f"cannot see what {shortened(loop.source.code(over))} makes its batches of, so that a rank could take its "
        "share: read them with a torch DataLoader, or cut them out of tensors in this loop"
    )
    return Concern("AD902", loop.source, over, message, Severity.REFUSAL)


def _takes_from(iterator: str) -> str:
    return (
        f"takes its batches from {iterator}, which has no sampler and puts the batch on an axis of its own: "
        "read them with a torch DataLoader"
    )


def _undefined(backward: Event, run: Interpreter) -> ast.Name | None:
    """A name in the head of a training loop that means nothing."""
    for loop in backward.loops:
        for node in ast.walk(loop.node.iter) if isinstance(loop.node, (ast.For, ast.AsyncFor)) else ():
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                if External(f"builtins.{node.id}") in run.values.get(node, NOTHING).things:
                    return node
    return None


def _along_sequence(run: Interpreter) -> Draw | None:
    """A slice that steps through a sequence, as in `x = text[i : i + n]; y = text[i + 1 : i + 1 + n]`."""
    starts: dict[str, set[str]] = {}
    for draw in _drawn(run):
        if (
            isinstance(draw.node, ast.Subscript)
            and isinstance(draw.node.slice, ast.Slice)
            and draw.node.slice.lower is not None
        ):
            lowers = starts.setdefault(ast.dump(draw.node.value), set())
            lowers.add(ast.dump(draw.node.slice.lower))
            if len(lowers) > 1:
                return draw
    return None


def _through_time(run: Interpreter, again: Callable[[Plan], Interpreter], modules: frozenset[int]) -> Draw | None:
    """A slice of which a layer takes the first axis for time, so that its rows are no samples."""
    draws = _drawn(run)
    if not any(isinstance(draw.node, ast.Subscript) for draw in draws) and not _takes_sequences_first(run):
        return None
    taken = frozenset(id(draw.node) for draw in draws)
    for event in again(Plan(sharded=frozenset(), draws=taken, modules=modules, wholes=frozenset())).of("along_rows"):
        if (
            found := next((draw for draw in draws if draw in event.value.origins and not draw.noise), None)
        ) is not None:
            return found
    return None


def _drawn(run: Interpreter) -> list[Draw]:
    """The draws that a step makes its batches of, where no loader does."""
    if any(event.value.spread is not SAME for event in run.of("backward")):
        return []
    return [] if any(isinstance(origin, Object) for origin in _origins(run)) else _batch_draws(run)


def _beside_loaders(run: Interpreter) -> tuple[Draw, Event] | None:
    """A step that trains on samples picked by hand alone, where others train on those of a loader."""
    if _is_distributed(run) or not any(isinstance(origin, Object) for origin in _origins(run)):
        return None
    picking = {thing for event in run.of("picks") if event.loops for thing in event.value.things}
    for event in run.of("backward"):
        if not any(isinstance(origin, Object) for origin in event.value.origins):
            drawn = sorted(
                (o for o in event.value.origins if isinstance(o, Draw) and o in picking),
                key=lambda o: (o.node.lineno, o.node.col_offset),
            )
            if drawn:
                return drawn[0], event
    return None


def _takes_closure(event: Event) -> bool:
    return any(isinstance(t, Object) and t.name.endswith(".LBFGS") for t in event.value.things)


def _foreign_iterator(run: Interpreter) -> str | None:
    """A library's own way of making batches that the script uses."""
    names = {t.name for v in run.values.values() for t in v.things if isinstance(t, (External, Object))}
    found = [name for name in names if name.startswith("torchtext.") and "Iterator" in name]
    return min(found, key=lambda name: (len(name), name)) if found else None


def _is_environment(run: Interpreter) -> bool:
    names = {
        t.name for v in run.values.values() for t in v.things if isinstance(t, (External, Object)) and "." in t.name
    }
    return any(name.startswith(("gym.", "gymnasium.", "pettingzoo.")) for name in names)


# -------------------------------------------------------------------- data


def _origins(run: Interpreter) -> list[Object | Draw]:
    """The loaders and draws whose samples reach a gradient."""
    found: dict[Object | Draw, None] = {}
    for event in run.events:
        if event.kind == "backward":
            given = [each for each in event.value.origins if isinstance(each, (Object, Draw))]
            data = [each for each in given if not is_clock(each) and not (isinstance(each, Draw) and each.whole)]
            for origin in sorted(data, key=lambda o: (o.node.lineno, o.node.col_offset)):
                found.setdefault(origin)
    return list(found)


def _batch_draws(run: Interpreter) -> list[Draw]:
    """Draws made anew for each step: in the innermost loop around a backward, or called from there."""
    loops = {loop.node for event in run.of("backward") for loop in event.loops[-1:]}
    origins = set(_origins(run))
    found = []
    for event in run.of("draw"):
        if not event.inside_forward and any(loop.node in loops for loop in event.loops[-2:]):
            found += [t for t in event.value.things if isinstance(t, Draw) and t in origins]
    found = list(dict.fromkeys(found))
    # a permutation that is then cut into batches is not itself a batch
    slices = [draw for draw in found if isinstance(draw.node, ast.Subscript)]
    chosen = slices or [draw for draw in found if not draw.noise and not _is_permutation(draw)]
    noise = [draw for draw in found if draw.noise and draw not in chosen]
    sizes = {_size_of(draw, run) for draw in chosen or noise}
    if not chosen and (
        len(sizes) > 1
        or _takes_sequences_first(run)
        or not all(_only_sizes_batches(draw, noise, run) for draw in noise)
    ):
        return []
    return [*chosen, *(draw for draw in noise if draw.size is not None and _size_of(draw, run) in sizes)]


def _is_permutation(draw: Draw) -> bool:
    """Whether all of the data is put in order: a share of that says nothing about the size of a batch."""
    return isinstance(draw.node, ast.Call) and getattr(draw.node.func, "attr", getattr(draw.node.func, "id", "")) in (
        "randperm",
        "permutation",
    )


def _takes_sequences_first(run: Interpreter) -> bool:
    """Whether a module takes the batch as its second axis, so that the first one of a tensor may be time."""
    return any(
        isinstance(thing, Object)
        and thing.name.startswith("torch.nn.")
        and thing.name.rpartition(".")[2].startswith(SEQUENCES_FIRST)
        and thing.keywords.get("batch_first", NOTHING).const is not True
        for value in run.values.values()
        for thing in value.things
    )


def _size_of(draw: Draw, run: Interpreter) -> object:
    """The number of samples, or as much as is known of it."""
    if draw.size is None:
        return None
    const = run.values.get(draw.size, NOTHING).const
    if isinstance(const, int):
        return const
    return last_name(draw.size) if isinstance(draw.size, (ast.Name, ast.Attribute)) else ast.dump(draw.size)


def _only_sizes_batches(draw: Draw, draws: list[Draw], run: Interpreter) -> bool:
    """Whether the size of a drawn batch also shapes nothing that would then be too large for a rank's share."""
    if isinstance(draw.size, ast.Constant):
        return True
    if not isinstance(draw.size, (ast.Name, ast.Attribute)):
        return False
    nodes = {each.node for each in draws}
    steps = run.step_loops
    return all(
        not nodes.isdisjoint(source.ancestors(use))
        or _is_handed_on(use, source, run)
        or _shapes_tensors(use, source, run, in_step=bool(run.loops_of.get(use, set()) & steps))
        for use, source in run.sources.items()
        if isinstance(use, (ast.Name, ast.Attribute))
        and isinstance(use.ctx, ast.Load)
        and last_name(use) == last_name(draw.size)
    )


def _is_handed_on(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a value is only printed, or given to a function of the project."""
    parent = source.parents[use]
    if isinstance(parent, ast.keyword):
        parent = source.parents[parent]
    if isinstance(parent, ast.Call):
        things = run.values.get(parent.func, NOTHING).things
        printed = isinstance(parent.func, ast.Name) and parent.func.id == "print"
        return printed or bool(things) and all(isinstance(thing, Function) for thing in things)
    return isinstance(parent, (ast.FormattedValue, ast.Assign))


def _shard_sites(run: Interpreter, trained: set[tuple[int, Path_]]) -> frozenset[tuple[int, Path_]]:
    """Keys of the loaders to shard: those that train, and what else the same call makes if nothing tells them apart."""
    keys = set(trained)
    by_node: dict[ast.AST, list[tuple[Object, Mapping[str, object]]]] = {}
    for event in run.events:
        if event.kind == "loader":
            for thing in event.value.objects("loader"):
                by_node.setdefault(thing.node, []).append((thing, dict(event.detail.const)))
    for made in by_node.values():
        if any(t.key in trained for t, _ in made) and any(t.key not in trained for t, _ in made):
            if _switch(made, trained) is None:
                keys |= {t.key for t, _ in made}
    return frozenset(keys)


def _switch(made: list[tuple[Object, Mapping[str, object]]], trained: set[tuple[int, Path_]]) -> str | None:
    """The expression that is true where a shared call makes a training loader."""
    training = [dict(names) for thing, names in made if thing.key in trained]
    others = [dict(names) for thing, names in made if thing.key not in trained]
    shuffles = {argument(thing.node, "shuffle", 2) for thing, _ in made}
    named = {each.id for each in shuffles if isinstance(each, ast.Name)}
    return escapes.distinguishing(training, others, named.pop() if len(named) == 1 else None)


def _loaders(
    first: Interpreter, run: Interpreter, trained: set[tuple[int, Path_]]
) -> tuple[list[Loader], list[Concern]]:
    made: dict[ast.AST, list[tuple[Object, Mapping[str, object]]]] = {}
    nodes: dict[ast.AST, Source] = {}
    for event in run.events:
        if event.kind in ("loader", "make"):
            for thing in event.value.objects("loader"):
                if all(thing is not other for other, _ in made.get(thing.node, [])):
                    names = dict(event.detail.const) if event.kind == "loader" else {}
                    made.setdefault(thing.node, []).append((thing, names))
                    nodes[thing.node] = event.source if event.kind == "loader" else thing.source
    loaders, concerns = [], []
    passes = _passes(run)
    for node, found in made.items():
        ours = [(t, n) for t, n in found if t.key in trained]
        if not ours:
            continue
        mixed = len(ours) < len(found)
        switch = _switch(found, trained) if mixed else None
        loader = ours[0][0]
        source = nodes[node]
        dataset = loader.argument("dataset", 0) or NOTHING
        iterable = any("iterable_dataset" in t.roles for t in dataset.things if isinstance(t, Object))
        loaders.append(
            Loader(
                loader,
                source,
                loader.node,
                tuple(_epochs([t for t, _ in ours], passes, run)),
                all(run.is_sharded(t) for t, _ in ours),
                mixed,
                switch,
                iterable,
                _has_distributed_sampler(loader),
                frozenset(t.key for t, _ in ours),
                any(resizing.changes_length(t, passes.get(t, ()), run) for t, _ in ours),
            )
        )
        if mixed and switch is None:
            concerns.append(
                Concern(
                    "AD201",
                    source,
                    node,
                    (
                        "makes loaders for training and for evaluation alike: both are sharded, and where a "
                        "data set does not divide, evaluation counts the samples that pad it twice"
                    ),
                    Severity.WARNING,
                )
            )
    return loaders, concerns


def _evaluation_loaders(run: Interpreter, loaders: list[Loader]) -> Iterator[Site]:
    """The calls that make loaders of which none trains."""
    training = {loader.node for loader in loaders}
    made = {
        event.node: event.source
        for event in run.of("loader")
        if any(thing.name == "torch.utils.data.DataLoader" for thing in event.value.objects("loader"))
    }
    yield from (Site(source, node) for node, source in made.items() if node not in training)


def _evaluation_samplers(run: Interpreter, loaders: list[Loader]) -> Iterator[Site]:
    """The calls that make random samplers for such loaders, which draw from the global generator."""
    training = {loader.node for loader in loaders}
    used = {sampler.node for loader in loaders for sampler in randomness.unseeded_samplers(loader.object)}
    found = {
        sampler.node: Site(sampler.source, sampler.node)
        for event in run.of("loader")
        if event.node not in training
        for loader in event.value.objects("loader")
        for sampler in randomness.unseeded_samplers(loader)
    }
    yield from (site for node, site in found.items() if node not in used)


def _has_distributed_sampler(loader: Object) -> bool:
    sampler = loader.argument("sampler", 3) or NOTHING
    return any(
        "distributed_sampler" in thing.roles and (thing.argument("shuffle", 3) or NOTHING).const is not False
        for thing in sampler.things
        if isinstance(thing, Object)
    )


def _passes(run: Interpreter) -> dict[Object, list[Event]]:
    """Where a pass over each loader starts."""
    found: dict[Object, list[Event]] = {}
    for event in sorted([*run.of("iterate"), *run.of("iter")], key=lambda e: e.order):
        if not isinstance(event.node, ast.comprehension):
            for loader in dict.fromkeys(drawn_from(event.value)):
                found.setdefault(loader, []).append(event)
    return found


def _epochs(loaders: list[Object], passes: Mapping[Object, list[Event]], run: Interpreter) -> Iterator[Epoch]:
    """The statements that start a pass over one of the loaders."""
    seen: set[ast.stmt] = set()
    events = {event.order: event for loader in loaders for event in passes.get(loader, [])}
    steps = run.step_loops
    restarts = any(event.kind == "iter" and event.loops and event.loops[-1].node in steps for event in events.values())
    phases = {_outermost(event) for event in events.values() if event.kind == "iterate" and event.grad}
    made: dict[Object, set[ast.AST]] = {each: set() for each in loaders}
    for event in run.of("loader"):
        for loader in event.value.objects("loader"):
            if loader in made:
                made[loader] |= {loop.node for loop in event.loops}
    looked_at: set[Object] = set()
    for _, event in sorted(events.items()):
        statement = event.node if isinstance(event.node, ast.stmt) else event.source.statement(event.node)
        outer = [loop for loop in event.loops if isinstance(loop.node, (ast.For, ast.While))]
        if not outer and event.grad and statement not in seen:  # a look at the data before it is trained on
            again_looked = not looked_at.isdisjoint(drawn_from(event.value))
            looked_at |= set(drawn_from(event.value))
            if again_looked:
                seen.add(statement)
                yield Epoch(event.source, statement, _loader_name(event, loaders, run), None)
        if not outer or statement in seen or any(isinstance(s, ast.For) and s is statement for s in seen):
            continue
        seen.add(statement)
        name = _loader_name(event, loaders, run)
        kept = [loop for loop in outer if not all(loop.node in made[each] for each in loaders)]
        number, counted = _number(outer, event)
        anew = number is not None and any(loop.node in made[loader] for loader in loaders for loop in outer)
        again = restarts or number is not None and _passes_again(statement, events.values(), loaders)
        if len(phases) > 1 or _is_repeated(kept):
            number = None
        elif again:
            number = f"{name}.sampler.epoch + {number} + 1" if anew and name else None
        around = outer[: outer.index(counted)] if number is not None and counted is not None else outer
        remade = [loop for loop in around if any(loop.node in made[loader] for loader in loaders)]
        begun = not all(_makes_model(loop, run) for loop in remade)
        yield Epoch(event.source, statement, name, number, begun)


def _makes_model(loop: Loop, run: Interpreter) -> bool:
    """Whether a loop makes a model that has seen no samples, as one for each fold of the data: its epochs may have the
    orders of another one's."""
    calls = [node for node in ast.walk(loop.node) if isinstance(node, ast.Call)]
    if any(last_name(each.func) in ("deepcopy", "load_state_dict") for each in calls):
        return False
    made = {t.node for each in calls for t in run.values.get(each, NOTHING).objects("module")}
    return not made.isdisjoint(calls)


def _passes_again(statement: ast.stmt, events: Iterable[Event], loaders: list[Object]) -> bool:
    """Whether a round of the loops around calls a function twice that passes over a loader it is given: once for each
    of two models that train."""
    ways: dict[tuple[Object, tuple[ast.AST, ...]], set[tuple[int, ...]]] = {}
    for event in events:
        if event.grad and event.node is statement:
            loops = tuple(loop.node for loop in event.loops)
            for loader in set(drawn_from(event.value)) & set(loaders):
                ways.setdefault((loader, loops), set()).add(tuple(id(call.node) for call in event.calls))
    return any(len(each) > 1 for each in ways.values())


def _is_repeated(loops: list[Loop]) -> bool:
    """Whether no loop numbers the passes over a loader: a `while` has no number, a loop around starts it anew."""
    counting = [place for place, loop in enumerate(loops) if any(_numbers(loop).values())]
    return any(isinstance(loop.node, ast.While) for loop in loops) or bool(counting) and counting[-1] > 0


def _numbers(loop: Loop) -> dict[str, set[Index]]:
    """What a loop's target names that counts its rounds."""
    target = None if isinstance(loop.node, ast.While) else loop.node.target
    names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)] if target is not None else []
    return {name: {t for t in loop.scope.names.get(name, NOTHING).things if isinstance(t, Index)} for name in names}


def _outermost(event: Event) -> ast.AST | None:
    """The loop around all others where a pass starts; each may count from zero."""
    loops = [loop.node for loop in event.loops if isinstance(loop.node, (ast.For, ast.While))]
    return loops[0] if loops else None


def _loader_name(event: Event, loaders: list[Object], run: Interpreter) -> str | None:
    """An expression that names the loader where a pass over it starts."""
    start = event.node.iter if isinstance(event.node, (ast.For, ast.AsyncFor)) else event.node
    for node in ast.walk(start):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and _is_path(node):
            value = run.values.get(node, NOTHING)
            if _is_loader(value, loaders):
                return event.source.code(node)
            for bar in value.objects("progress"):
                if (name := _read_by(bar, event, loaders, run)) and name != event.source.code(node):
                    return name
                if name and bar.name.startswith("tqdm.") and _is_path(bar.node.args[0]):
                    return f"{name}.iterable"  # `loader = tqdm(loader)`
    scope: Scope | None = event.scope
    while scope is not None:
        for name, value in scope.names.items():
            if _is_loader(value, loaders):
                return name
        scope = scope.parent
    owner = event.function.owner if event.function is not None else None
    if isinstance(owner, Object) and isinstance(event.function and event.function.node, ast.FunctionDef):
        first = event.function.node.args.args[:1] if event.function is not None else []
        for name, value in owner.attributes.items():
            if first and _is_loader(value, loaders):
                return f"{first[0].arg}.{name}"
    return None


def _read_by(bar: Object, event: Event, loaders: list[Object], run: Interpreter) -> str | None:
    """The expression for the loader in `bar = tqdm(loader)`, where the same function then iterates over the bar."""
    if bar.source is not event.source or not isinstance(bar.node, ast.Call) or not bar.node.args:
        return None
    homes = [event.source.home(node) for node in (bar.node, event.node)]
    read = bar.node.args[0]
    while isinstance(read, ast.Call) and getattr(read.func, "id", "") == "enumerate" and read.args:
        read = read.args[0]
    if homes[0] is homes[1] and _is_path(read) and _is_loader(run.values.get(read, NOTHING), loaders):
        return event.source.code(read)
    return None


def _is_loader(value: Value, loaders: list[Object]) -> bool:
    """Whether a value is one of the loaders, or another one, and nothing else such as a progress bar over it."""
    return any(t in loaders for t in value.things) and all(
        isinstance(t, Object) and "loader" in t.roles for t in value.things
    )


def _is_path(node: ast.AST) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Constant, ast.Name)):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def _number(outer: list[Loop], event: Event) -> tuple[str | None, Loop | None]:
    """The name, where a pass starts, of the running number of the innermost loop around it that has one,
    and that loop."""
    definition = event.function.node if event.function is not None else None
    parameters = {a.arg for a in (*definition.args.args, *definition.args.kwonlyargs)} if definition is not None else ()
    for loop in reversed(outer):
        if not isinstance(loop.node, ast.For):
            continue
        numbers = _numbers(loop)
        indices = frozenset().union(*numbers.values())
        inner: Scope | None = event.scope
        while inner is not None:
            for name, value in inner.names.items():
                # another variable that holds it may hold it from an earlier round: `best_epoch = epoch`
                if inner is loop.scope and numbers.get(name) or name in parameters and indices & value.things:
                    return name, loop
            if inner is loop.scope:
                break
            parameters, inner = (), inner.parent
    return None, None


# -------------------------------------------------------------------- batch sizes


def _batch_sizes(run: Interpreter, plan: Plan) -> list[Site]:
    """Uses of a training loader's batch size that build or shape tensors in a training step: a rank has its share."""
    assert plan.sharded is not None
    names: set[str] = set()
    literals: set[object] = set()
    for event in run.events:
        if event.kind == "loader" and any(
            t.key in plan.sharded and not run.is_sharded(t) for t in event.value.objects("loader")
        ):
            assert isinstance(event.node, ast.Call)
            node = argument(event.node, "batch_size", 1) or _in_settings(event.node, "batch_size", run)
            if node is not None and (name := _setting(node)) is not None:
                names.add(name)
            elif isinstance(node, ast.Constant) and node.value != 1:
                literals.add(node.value)
    drawn = [draw for event in run.of("draw") for draw in event.value.things if isinstance(draw, Draw)]
    drawn = [draw for draw in drawn if plan.draws is not None and id(draw.node) in plan.draws]
    shared = {draw.node for draw in drawn}
    names |= {last_name(draw.size) for draw in drawn if isinstance(draw.size, (ast.Name, ast.Attribute))}
    made = (run.loops_of.get(draw.size, set()) for draw in drawn if draw.size is not None)  # in a generator of batches
    steps = run.step_loops.union(*made)
    return [
        Site(source, use)
        for use, source in run.sources.items()
        if isinstance(use, ast.expr)
        and (
            _is_named(use, names)
            or isinstance(use, ast.Constant)
            and use.value in literals
            and _counts_rows(use, source)
        )
        and not _is_also_other(use, source, run, names)
        and run.values.get(use, NOTHING).spread is not COUNT  # `batch_size = x.shape[0]` is this rank's already
        and not run.is_gathered(run.values.get(use, NOTHING))
        and not _is_read_off(use, source)
        and shared.isdisjoint(source.ancestors(use))
        and not any(_is_in(steps, bound, run) for bound in _bound(use, source, names))
        and (
            _is_in(steps, use, run)
            and _is_given_to_shape(use, source, run, names)
            or any(
                _shapes_tensors(
                    each,
                    source,
                    run,
                    _is_in(steps, use, run) or _is_refilled(use, source) or _fills_for_steps(use, source, run, steps),
                )
                for each in (use, *(_used_as(use, source) if _is_in(steps, use, run) else ()))
            )
        )
    ]


def _setting(node: ast.expr) -> str | None:
    """What a setting is called: `batch_size`, `args.batch_size`, `config["batch_size"]`."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return last_name(node)
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _is_named(use: ast.expr, names: set[str]) -> bool:
    """Whether a setting is read that goes by one of these names."""
    return isinstance(getattr(use, "ctx", None), ast.Load) and _setting(use) in names


def _is_also_other(use: ast.expr, source: Source, run: Interpreter, names: set[str]) -> bool:
    """Whether this is a parameter of a function that is told the batch size in one place and another number in the
    next: `noise(batch_size)` and `noise(25)`. It becomes a rank's share where it is given."""
    home = source.function(use) if isinstance(use, ast.Name) else None
    if not isinstance(home, ast.FunctionDef) or not isinstance(use, ast.Name):
        return False
    calls = (each for each in run.sources if isinstance(each, ast.Call))
    called = [(call, each) for call in calls for each in _functions(call, run) if each.node is home]
    given = [node for call, each in called if (node := _given(call, each, use.id)) is not None]
    told = {_is_named(node, names) for node in given if run.values.get(node, NOTHING).spread is not COUNT}
    return len(told) > 1


def _functions(call: ast.Call, run: Interpreter) -> list[Function]:
    """The functions of the project that a call may enter."""
    return [each for each in run.values.get(call.func, NOTHING).things if isinstance(each, Function)]


def _given(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """What a call gives a parameter."""
    parameters = _parameters(function)
    return argument(call, name, parameters.index(name) if name in parameters else None)


def _parameters(function: Function) -> list[str]:
    """What a call may give a function by its place: a method is bound already."""
    parameters = [each.arg for each in function.node.args.args]
    return parameters[1:] if function.owner is not None else parameters


def _is_read_off(use: ast.expr, source: Source) -> bool:
    """Whether a variable is bound to the size of a tensor: `batch_size, channels = x.shape`."""
    home = source.function(use) if isinstance(use, ast.Name) else None
    bound = [each for each in ast.walk(home) if isinstance(each, ast.Assign)] if home is not None else []
    names = [(n, each.value) for each in bound for t in each.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    values = [value for name, value in names if name.id == getattr(use, "id", None)]
    sizes = (n for value in values for n in ast.walk(value) if isinstance(n, ast.Attribute))
    return any(size.attr in ("size", "shape") for size in sizes)


def _is_given_to_shape(use: ast.expr, source: Source, run: Interpreter, names: set[str]) -> bool:
    """`noise(batch_size)`, of a function that draws so many: the size is a rank's share where it is given. Where the
    function calls it by a name of the batch size, it becomes one inside."""
    call = source.parents[use]
    call = source.parents[call] if isinstance(call, ast.keyword) else call
    if not isinstance(call, ast.Call) or use is call.func:
        return False
    for thing in _functions(call, run):
        if isinstance(thing.node, ast.FunctionDef):
            given = [name for name in _parameters(thing) if _given(call, thing, name) is use]
            uses = (n for n in ast.walk(thing.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
            named = [n for n in uses if n.id in given]
            named = [n for n in named if n.id not in names or _is_also_other(n, thing.source, run, names)]
            if any(_shapes_tensors(n, thing.source, run, True) for n in named):
                return True
    return False


def _is_in(steps: frozenset[ast.AST], node: ast.expr, run: Interpreter) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return bool(run.loops_of.get(node, set()) & steps)


def _bound(use: ast.expr, source: Source, names: set[str]) -> list[ast.expr]:
    """What a local variable is bound to, where that is a batch size: `self.batch_size`, in a function that is also
    told a size. It becomes a rank's share there, not where the variable is used."""
    home = source.function(use) if isinstance(use, ast.Name) else None
    bound = (each for each in ast.walk(home) if isinstance(each, ast.Assign)) if home is not None else ()
    values = [each.value for each in bound if any(getattr(t, "id", "") == last_name(use) for t in each.targets)]
    return [each for each in values if isinstance(each, (ast.Name, ast.Attribute)) and last_name(each) in names]


def _used_as(use: ast.expr, source: Source) -> list[ast.expr]:
    """The uses of the local variable that a batch size is bound to."""
    statement, home = source.parents.get(use), source.function(use)
    if not isinstance(statement, ast.Assign) or statement.value is not use or home is None:
        return []
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    loads = (n for n in ast.walk(home) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return [each for each in loads if each.id in names]


def _in_settings(call: ast.Call, name: str, run: Interpreter) -> ast.expr | None:
    """The expression that a dict of settings gives a call: `DataLoader(data, **settings)`."""
    for keyword in call.keywords if any(each.arg is None for each in call.keywords) else ():
        for thing in run.values.get(keyword.value, NOTHING).things if keyword.arg is None else ():
            if isinstance(thing, Table) and isinstance(thing.node, ast.Dict):
                keys = (getattr(key, "value", None) for key in thing.node.keys)
                found = dict(zip(keys, thing.node.values, strict=True))
                if name in found:
                    return found[name]
    return None


def _counts_rows(literal: ast.Constant, source: Source) -> bool:
    """Whether a number stands where the first axis of a tensor is told, in every step: `torch.ones(8, 1)`."""
    outer = itertools.takewhile(lambda a: not isinstance(a, (ast.For, ast.While)), source.ancestors(literal))
    for each in outer:
        if (
            isinstance(each, ast.If)
            or isinstance(each, ast.With)
            and "_grad" in source.code(each.items[0].context_expr)
        ):
            return False  # samples to look at, now and then
    inner: ast.AST = literal
    parent = source.parents[literal]
    if isinstance(parent, (ast.Tuple, ast.List)) and parent.elts[0] is literal:
        inner, parent = parent, source.parents[parent]
        return isinstance(parent, (ast.Call, ast.keyword))
    return isinstance(parent, ast.Call) and len(parent.args) > 1 and parent.args[0] is inner


def _fills_for_steps(use: ast.expr, source: Source, run: Interpreter, steps: frozenset[ast.AST]) -> bool:
    """Whether a use is in the shape of a tensor of equal numbers that is made once, for training steps alone:
    `self.real = torch.ones(self.batch_size, 1)`."""
    statement = source.statement(use)
    call = next((each for each in source.ancestors(use) if isinstance(each, ast.Call)), None)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr not in ("ones", "zeros", "full"):
        return False
    if not isinstance(statement, ast.Assign):
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        target, value = next((pair for pair in pairs if any(n is use for n in ast.walk(pair[1]))), (target, value))
    while value is not call and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value  # `.to(device)`
    if value is not call or not isinstance(target, (ast.Name, ast.Attribute)):
        return False
    kind = (ast.FunctionDef, ast.AsyncFunctionDef) if isinstance(target, ast.Name) else ast.ClassDef
    home = next((a for a in source.ancestors(statement) if isinstance(a, kind)), source.tree)
    name = ast.unparse(target)
    reads = [
        each
        for each in ast.walk(home)
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Load) and ast.unparse(each) == name
    ]
    others = [each for each in reads if not _is_assigned_back(each, source, name)]
    return bool(others) and all(run.loops_of.get(each, set()) & steps for each in others)


def _is_assigned_back(read: ast.expr, source: Source, name: str) -> bool:
    """`self.real = self.real.cuda()`, also among others of a tuple"""
    statement = source.statement(read)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(name in map(ast.unparse, getattr(target, "elts", [target])) for target in targets)


REFILLING = frozenset("copy_ normal_ uniform_ fill_ resize_ resize_as_ random_".split())


def _is_refilled(use: ast.expr, source: Source) -> bool:
    """Whether a use is in the shape of a tensor that is made once and filled anew in each step."""
    statement = source.statement(use)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    name = statement.targets[0].id
    home = source.home(statement)
    for call in ast.walk(home):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in REFILLING:
            base = call.func.value
            base = base.value if isinstance(base, ast.Attribute) and base.attr == "data" else base
            if isinstance(base, ast.Name) and base.id == name:
                return True
    return False


def _shapes_tensors(use: ast.expr, source: Source, run: Interpreter, in_step: bool) -> bool:
    """Whether a use builds a tensor in a training step, or reshapes one that holds this rank's samples, or takes some
    of these: `out[:batch_size]` of what was computed for two batches."""
    inner: ast.AST = use
    if in_step and _cuts_rows(use, source, run):
        return True
    for ancestor in source.ancestors(use):
        if isinstance(ancestor, ast.Call) and inner is not ancestor.func:
            called = last_name(ancestor.func) if isinstance(ancestor.func, (ast.Name, ast.Attribute)) else ""
            base = ancestor.func.value if isinstance(ancestor.func, ast.Attribute) else ancestor.func
            ours = run.values.get(base, NOTHING).spread in (ROWS, Spread.COLUMNS)
            listed = isinstance(inner, (ast.Tuple, ast.List)) and inner.elts[0] is use
            drawn = called in SAMPLING and listed  # `prior.sample((batch_size,))`, of a distribution
            return (called in SHAPES or drawn) and (in_step or ours) or called in KEYS and in_step
        if isinstance(ancestor, ast.Compare):
            return in_step and any(
                run.values.get(part, NOTHING).spread is COUNT for part in (ancestor.left, *ancestor.comparators)
            )
        if isinstance(ancestor, (ast.stmt, ast.BinOp)):
            return False
        inner = ancestor
    return False


def _cuts_rows(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """`out[batch_size : 2 * batch_size]`"""
    inner, cut = use, source.parents[use]
    if isinstance(cut, ast.BinOp) and isinstance(cut.op, ast.Mult):
        inner, cut = cut, source.parents[cut]
    if not isinstance(cut, ast.Slice) or inner is cut.step:
        return False
    outer = source.parents[cut]
    first = cut if not isinstance(outer, ast.Tuple) else outer.elts[0]
    taken = source.parents[outer] if isinstance(outer, ast.Tuple) else outer
    if first is not cut or not isinstance(taken, ast.Subscript):
        return False
    value = run.values.get(taken.value, NOTHING)
    return value.spread is ROWS and not value.things


# -------------------------------------------------------------------- the whole


def _reduction(place: escapes.Placed, hoist: ast.stmt | None) -> Reduction:
    over = tensors.averaged(place.node) if place.spread is Spread.FEWER and isinstance(place.node, ast.expr) else None
    return Reduction(place.source, place.node, place.spread, hoist, place.after, place.switch, over)


def _assemble(
    project: Project,
    first: Interpreter,
    run: Interpreter,
    models: list[Model],
    trained: set[tuple[int, Path_]],
    draws: frozenset[object],
    batch_sizes: list[Site],
    placed: list[escapes.Placed],
    leftover: list[escapes.Placed],
    held: list[tuple[Site, ast.stmt]],
) -> TrainingScript:
    shared_draws = (*_draw_sites(run, draws), *wholes.draws(run, "dealt_out"))
    dealt: frozenset[ast.AST] = frozenset(draw.node for draw in shared_draws)
    loaders, concerns = _loaders(first, run, trained)
    loaders = [randomness.with_shared_order(loader, run, models) for loader in loaders]
    prepared, alone = regions.preparations(run)
    outside = frozenset(site.node for site in (*prepared, *alone))
    waits = tuple(waiting.for_rank_zero(run, outside))
    guards, opens = regions.writes(run, outside, naming.folders_apart(run))
    sharded = shards.shards(run, models) if run.plan.bare else Shards()
    needed = {p.node: p.source for p in placed} | {s.node: s.source for s in (*sharded.saves, *sharded.reads)}
    guards, opens = regions.opened(guards, opens, needed)
    guards = [site for site in guards if not _only_saves(site, sharded)]
    alone_there = [*guards, *regions.where_a_writer_is(guards, run)]
    if not _is_distributed(run) or run.plan.bare:
        hoists, stuck = shards.hoists(run, models, sharded, alone_there)
        sharded = replace(sharded, hoists=(*held, *hoists))
        concerns += stuck
    guarded = {site.node for site in alone_there}
    reported = [
        (p.event.on_one_rank, _reduction(p, _hoist(p, guarded))) for p in (placed if not _is_distributed(run) else ())
    ]
    reductions = [each for alone, each in reported if not alone and not _stays_below(each)]
    concerns += _import_time_concerns(run, loaders, [*guards, *opens, *prepared], models)
    concerns += _leftover_concerns(leftover, run)
    concerns += unshardable.concerns(run, models) if run.plan.bare else ()
    concerns += [
        Concern(
            "AD601",
            each.source,
            each.node,
            (
                f"rank 0 reports {each.source.code(each.node)}, which covers only its own samples; reduce it "
                "over the ranks before this branch"
            ),
            Severity.WARNING,
        )
        for alone, each in reported
        if alone or _stays_below(each)
    ]
    concerns += _never_joined(run)
    concerns += _loss_concerns(run)
    concerns += _sampler_concerns(run)
    in_training = previews.passes_in_training(run)
    previewed, missed = previews.previews(in_training, run, models)
    followers, unfollowed = previews.unsynchronised(in_training, run, models)
    concerns += [*missed, *unfollowed]
    concerns += _sample_after_sample(run)
    averaged, unaveraged = averaging.averaged(run, models)
    concerns += unaveraged if not run.plan.bare else ()
    concerns += _compiled_statistics(run, models)
    concerns += _unwrapped_uses(run, models)
    concerns += _unreached_norms(run, models)
    concerns += [*_differentiated_norms(run, models), *_kept_statistics(models)]
    concerns += _amplified_in_part(run)
    awaited = any(not model.bypassed for model in models)  # gradients that are averaged by hand are not
    concerns += _penalties_alone(run) if awaited and not run.plan.bare else ()
    concerns += [*hooks.reentrant(run), *hooks.bent(run)] if not _is_distributed(run) else ()
    concerns += hooks.concerns(run, models) if run.plan.bare or not _is_distributed(run) else ()
    prefixed = list(_prefixed(run, models))
    concerns += _lost_prefixes(prefixed)
    concerns += turns.concerns(loaders)
    concerns += unwraps.concerns(run, run.catalog.knows)
    kinds: dict[str, list[Event]] = {}
    for event in run.events:
        kinds.setdefault(event.kind, []).append(event)

    def sites(*names: str) -> tuple[Site, ...]:
        unique = {e.node: Site(e.source, e.node) for name in names for e in kinds.get(name, []) if not e.on_one_rank}
        return tuple(sorted(unique.values(), key=lambda s: _at(run, s)))

    hidden = tuple(_hidden_devices(project))
    meant, maybe = unwraps.found(run)
    seeded = frozenset(randomness.seeded(run))
    lone = frozenset(site.node for site in sites("writer") if regions.is_lone_writer(site, run))
    apart = randomness.diverge(run, loaders, draws | {d.node for d in wholes.draws(run, "dealt_out")}, models, dealt)
    varied = frozenset(randomness.noise(run, dealt))
    script = TrainingScript(
        project,
        run.values,
        distributed=_is_distributed(run),
        sometimes_joined=_sometimes_joined(run),
        launcher=without(launcher(run), run.plan.dropped),
        prints=any(not event.on_one_rank for kind in ("print", "log", "progress") for event in kinds.get(kind, [])),
        models=tuple(models),
        loaders=tuple(loaders),
        evaluation_loaders=tuple(_evaluation_loaders(run, loaders)),
        evaluation_samplers=tuple(_evaluation_samplers(run, loaders)),
        draws=shared_draws,
        batch_sizes=tuple(batch_sizes),
        wholes=tuple(wholes.draws(run)),
        row_means=tuple(wholes.row_means(run)),
        paired=tuple(wholes.paired(run)),
        averaged=tuple(averaged),
        sums=tuple(_sums(run)),
        amplified=_amplified(run),
        previews=tuple(previewed),
        followers=tuple(followers),
        reductions=tuple(reductions),
        unwraps=tuple(meant),
        layer_tests=tuple(_layer_tests(run, models)),
        prefixed_loads=tuple(dict.fromkeys(filter(None, map(_checkpoint, prefixed)))),
        maybe_wrapped=maybe,
        guards=tuple(sorted(guards, key=lambda s: _at(run, s))),
        before_group=frozenset(_before_group(run, guards)),
        opens=tuple(opens),
        writers=sites("writer"),
        lone_writers=lone,
        places_of_writers=(
            naming.places_of_writers(run, [*alone_there, *opens, *sites("file_handler"), *sites("log_config")])
            if lone
            else ()
        ),
        downloads=tuple(_downloads(prepared, run)),
        waits=waits,
        first_writes=tuple(
            dict.fromkeys((*waiting.first_writes(waits, [*guards, *opens]), *waiting.looked(run, guards, outside)))
        ),
        turned_buffers=tuple(_turned_buffers(run)),
        data_parallel_calls=sites("data_parallel_call"),
        prepared_alone=tuple(alone),
        loads=tuple(_loads(run)),
        progress=tuple(s for s in sites("progress") if _accepts_disable(s, run)),
        file_handlers=tuple(s for s in sites("file_handler") if not regions.is_chosen_by_rank(s.node, run)),
        log_configs=tuple(s for s in sites("log_config") if not regions.is_chosen_by_rank(s.node, run)),
        uses_logging=bool(kinds.get("log") or kinds.get("log_config")),
        seeded=seeded,
        drawn=frozenset(randomness.drawn(run)),
        unordered=tuple(_unordered(run, frozenset(_first_on_rank_zero(prepared, run)))),
        named_apart=naming.named_apart(run),
        unseeded=tuple(
            randomness.seed_of(e) for e in run.of("unseeded") if not e.loops and not randomness.is_per_sample(e)
        ),
        searches=tuple(searching.searches(run)),
        diverge=apart,
        noise=varied,
        devices=tuple(_devices(project)),
        hidden_devices=hidden,
        asked_devices=tuple(_asked_devices(hidden)),
        set_devices=sites("set_device"),
        concerns=(
            *concerns,
            *naming.concerns(run),
            *_drawn_alike(run, varied | {"torch", "cuda"} if apart else frozenset(), dealt),
        ),
        shards=sharded,
    )
    setup = _setup(script, run)
    silenced = while_importing.silenced(run, setup) if models and not script.distributed else None
    return replace(script, setup=setup, silenced=silenced)


def _only_saves(site: Site, found: Shards) -> bool:
    """Whether a statement is a call that writes on rank 0 by itself."""
    return isinstance(site.node, ast.Expr) and any(site.node.value is save.node for save in found.saves)


def _at(run: Interpreter, site: Site) -> tuple[int, int, int]:
    return run.project.sources.index(site.source), getattr(site.node, "lineno", 0), getattr(site.node, "col_offset", 0)


def _hoist(place: escapes.Placed, guarded: set[ast.AST]) -> ast.stmt | None:
    """The guarded statement that a reduction must come before."""
    around = (place.node, *place.source.ancestors(place.node))
    return next((node for node in reversed(around) if node in guarded and isinstance(node, ast.stmt)), None)


def _stays_below(reduction: Reduction) -> bool:
    """Whether what rank 0 alone comes to, such as `if writer is not None:`, computes the value that has to be made
    before it."""
    return reduction.hoist is not None and shards.made_inside(reduction.node, reduction.hoist)


def _names_file(call: ast.AST) -> bool:
    """`logging.basicConfig(filename="train.log")`"""
    return isinstance(call, ast.Call) and any(keyword.arg == "filename" for keyword in call.keywords)


def _import_time_concerns(
    run: Interpreter, loaders: list[Loader], sites: list[Site], models: list[Model]
) -> Iterator[Concern]:
    """What needs the process group but happens while a module is imported, before the script can join it."""
    changed = {loader.node for loader in loaders if not loader.sharded} | {site.node for site in sites}
    changed |= {model.wrapping.statement for model in models if model.wrapping is not None and not model.wrapped}
    changed |= {event.node for event in run.of("file_handler") if models}
    changed |= {event.node for event in run.of("log_config") if models and _names_file(event.node)}
    for event in run.events:
        if event.calls or event.source is run.project.entry or _is_distributed(run):
            continue
        if event.node in changed or any(ancestor in changed for ancestor in event.source.ancestors(event.node)):
            message = "runs while this module is imported, before the process group exists: move it into a function"
            yield Concern("AD905", event.source, event.node, message, Severity.REFUSAL)
            return
    if models and not _is_distributed(run):
        yield from while_importing.concerns(run)


def _leftover_concerns(leftover: list[escapes.Placed], run: Interpreter) -> Iterator[Concern]:
    for place in leftover:
        if place.event.kind == "discarded":
            continue
        code = place.source.code(place.node)
        if place.event.kind == "state":
            kept = ast.unparse(place.event.detail.const[0])
            message = (
                f"{kept} keeps {shortened(code)} for later steps, computed from this rank's samples alone: ranks go on "
                "with other states than one process; gather it over the ranks before it is kept"
            )
        elif place.event.kind == "test":
            if not _decides(place):
                continue
            message = (
                f"decides on {shortened(code)}, which differs between ranks: they would part ways here; "
                "decide on a value that is reduced over the ranks"
            )
        else:
            message = (
                f"reports {shortened(code)}, computed from this rank's samples alone: gather it over the "
                "ranks, or compute it on rank 0 from all samples"
            )
        yield Concern("AD601", place.source, place.node, message, Severity.WARNING)


def _decides(place: escapes.Placed) -> bool:
    """Whether a branch on the value changes what the ranks do together: whether they step, leave or write."""
    branch = place.source.statement(place.node)
    inner = [n for n in ast.walk(branch) if isinstance(n, (ast.Break, ast.Continue, ast.Return, ast.Raise))]
    calls = {n.func.attr for n in ast.walk(branch) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return bool(inner) or bool(calls & {"backward", "step", "save"})


def _weighs_padding(event: Event, run: Interpreter) -> bool:
    """Whether a function that pads its rows takes a softmax along them afterwards, `softmax(scores, dim=1)`, and
    masks nothing."""
    home = event.source.function(event.node)
    if not event.inside_forward or home is None or "mask" in event.source.code(home):
        return False
    for call in (each for each in ast.walk(home) if isinstance(each, ast.Call) and each.lineno > event.node.lineno):  # type: ignore[attr-defined]
        layers = [t for t in run.values.get(call.func, NOTHING).things if isinstance(t, Object)]
        axes = [t.argument("dim", 0) for t in layers if t.name == "torch.nn.Softmax"]
        if last_name(call.func) == "softmax" and not layers:
            given = argument(call, "dim", 1 if not isinstance(call.func, ast.Attribute) else None)
            axes.append(run.values.get(given or (call.args[-1] if call.args else call), NOTHING))
        if any(axis is not None and axis.const == 1 for axis in axes):
            return True
    return False


def _sample_after_sample(run: Interpreter) -> Iterator[Concern]:
    """Layers that take the batch of a loader for a sequence, since nobody has said `batch_first=True`."""
    for event in run.of("along_rows"):
        layer = next((t for t in event.detail.things if isinstance(t, Object)), None)
        loaders = [t for t in event.value.origins if isinstance(t, Object) and "loader" in t.roles]
        if layer is None or not loaders or rowwise.takes_one(layer.name.rpartition(".")[2], event.value):
            continue
        if any(loader.argument("collate_fn") for loader in loaders):
            continue  # what a batch looks like is up to that function
        around = event.source.function(event.node)
        if around is not None and "pack_" in event.source.code(around):
            continue  # a packed sequence knows its own axes
        second = event.value.spread is COLUMNS
        message = (
            f"nn.{layer.name.rpartition('.')[2]} takes the {'second' if second else 'first'} axis for time, which is "
            "that of the samples in a batch of this loader: it runs from sample to sample, of which each rank has its "
            f"share{'' if second else '; make it with batch_first=True'}"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
        return


def _loss_concerns(run: Interpreter) -> Iterator[Concern]:
    seen: set[ast.AST] = set()
    for event in run.events:
        if event.kind != "backward" or event.node in seen:
            continue
        seen.add(event.node)
        if event.value.spread in (LOCAL, ROWS, Spread.COLUMNS):
            yield Concern(
                "AD602",
                event.source,
                event.node,
                (
                    "cannot tell that this loss is a mean over the samples of the batch: gradients are "
                    "averaged over ranks, which is right for a mean only (a masked or weighted mean "
                    "differs by how its weights fall on the ranks)"
                ),
                Severity.WARNING,
            )
    mixed = [
        (m.source, m.node)
        for e in run.of("backward")
        for m in rowwise.mixings(e.value)
        if m.reason != rowwise.PARTNERS and (run.plan.wholes is None or m.reason == rowwise.STATISTIC)
    ]
    computed = [*((e.source, e.node) for e in run.of("batch_statistic")), *mixed]
    for source, node in {source: (source, node) for source, node in reversed(computed)}.values():
        message = (
            "computes with a statistic of the batch: each rank takes that of its own samples, so that results differ "
            "from those of one process"
        )
        yield Concern("AD602", source, node, message, Severity.WARNING)
    for source, node in _pairings(run)[:1]:
        message = (
            f"{shortened(source.code(node))} pairs each sample of a batch with another: a rank finds it in "
            "its own share, so that results differ from those of one process"
        )
        yield Concern("AD602", source, node, message, Severity.WARNING)
    for event in [each for each in run.of("adaptive") if each.value.spread.is_local][:1]:
        message = (
            "chooses its steps by the errors of a whole batch, a rank by those of its own samples: results differ from "
            "those of one process within the solver's tolerance"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    for event in [each for each in run.of("pads_to_longest") if _weighs_padding(each, run)][:1]:
        message = (
            "pads to the longest of a rank's own samples, and a softmax over them gives the padding its share: results "
            "differ from those of one process; mask the padding, or pad to a fixed length (total_length)"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    for event in run.of("mined")[:1]:
        assert isinstance(event.node, ast.expr)
        message = (
            f"computes with those of a batch's samples that {shortened(event.source.code(event.node))} names, by what "
            "the others are: each rank chooses among its own samples only"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    for event in [each for each in run.of("word_loss") if each.node not in run.plan.weighed][:1]:
        model = next(thing.name.split(".")[1] for thing in event.value.things if isinstance(thing, Object))
        message = (
            f"the loss of {model} is a mean over the words that its labels do not leave out, of which ranks may have "
            "different numbers: gradients may differ slightly from those of one process"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
    weighted = {(source, node): option for source, node, option in weighing.left_over(run)}
    for (source, node), option in weighted.items():
        yield _weighted(source, node, option)
    if not weighted:
        yield from _uneven_losses(run)


def _pairings(run: Interpreter) -> list[tuple[Source, ast.expr]]:
    """What mixes each sample with another, whose place in the batch is fixed: `x.flip(0)`, MixUp of torchvision."""
    made = [(each.source, each.node) for event in run.of("make") for each in event.value.objects("mixes_samples")]
    mixings = [mixing for event in run.of("backward") for mixing in rowwise.mixings(event.value)]
    return [*made, *((each.source, each.node) for each in mixings if each.reason == rowwise.PARTNERS)]


def _uneven_losses(run: Interpreter) -> Iterator[Concern]:
    """Means over the words of a rank's samples, of which another rank has more."""
    means = [event for event in run.of("backward") if event.value.spread is MEAN]
    for event in [*run.of("uneven_loss"), *means]:
        why = run.uneven(event.value, target=event.kind == "uneven_loss")
        if why is None:
            continue
        picked = picks(event.value)
        made = shortened(picked.source.code(picked.node)) if picked is not None else collation.names(event.value)
        message = (
            f"{UNEVEN[why].format(made)}: each rank divides by the number of its own, so gradients differ slightly"
        )
        if takes_first(event.value):
            message = f"the loss is of some samples of each rank, [{made}], not of the batch: gradients differ"
        yield Concern("AD602", event.source, event.node, f"{message} from those of one process", Severity.WARNING)
        return
    if any(mark in source.text for source in run.project.sources for mark in ("mask", "pack_")):
        return  # what is filled up is left out again
    for event in run.of("padded"):
        message = (
            f"the model is given what {collation.names(event.value)} pads to the longest sample, and not how long each "
            "is: ranks pad to other lengths than one process, and what the model makes of the padding differs"
        )
        yield Concern("AD602", event.source, event.node, message, Severity.WARNING)
        return


UNEVEN = {
    Rows.JOINED: "the loss is a mean over what {} joins, of which ranks have different numbers",
    Rows.PADDED: "the loss is a mean over what {} pads to the longest sample, whose length differs by rank",
    Rows.FEWER: "the loss is a mean over the samples that {} leaves, of which ranks have different numbers",
}


def _sampler_concerns(run: Interpreter) -> Iterator[Concern]:
    """Samplers of the script's own that draw from a new seed, so that ranks would not agree on the samples."""
    yield from searching.concerns(run)
    for event in run.of("beyond"):
        code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else ""
        draw = next(thing for thing in event.value.things if isinstance(thing, Draw))
        message = (
            f"{code} mixes the samples of a batch by {shortened(draw.source.code(draw.node))}, which counts those of "
            "all ranks: a rank has its share only; draw as many numbers as the tensor has rows"
        )
        yield Concern("AD902", event.source, event.node, message, Severity.REFUSAL)
        return
    for event in run.of("shared_in_part"):
        code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else ""
        message = (
            f"{code} hands out a rank's share of a batch, or all of a batch that is made elsewhere, as a setting says: "
            "make the other one where it is called, too"
        )
        yield Concern("AD902", event.source, event.node, message, Severity.REFUSAL)
        return
    taken = run.plan.draws or frozenset()
    for event in run.of("local_draw"):
        if event.detail.const not in taken or not isinstance(event.node, ast.expr):
            continue
        code = event.source.code(event.node)
        message = (
            f"draws by {shortened(code)}, which each rank changes by its own samples: ranks would draw different "
            f"batches; gather what changes {shortened(code)} over the ranks, or draw without it"
        )
        yield Concern("AD902", event.source, event.node, message, Severity.REFUSAL)
        return
    for order, other in randomness.parted_orders(run):
        code = shortened(order.source.code(order.node)) if isinstance(order.node, ast.expr) else "the order"
        message = (
            f"{code} draws from the generator of which {other} draws as much as a rank's own rows ask for: ranks would "
            "put the samples in different orders; give the order a generator of its own"
        )
        yield Concern("AD902", order.source, order.node, message, Severity.REFUSAL)
        return
    for event in run.of("unseeded"):
        owners = [call.function.owner for call in event.calls]
        if any(isinstance(owner, Object) and owner.roles & {"sampler", "batch_sampler"} for owner in owners):
            message = (
                "a sampler that starts from a new seed draws other samples on each rank, where all must agree: "
                "give it a seed"
            )
            yield Concern("AD203", event.source, event.node, message, Severity.REFUSAL)
            return


def _compiled_statistics(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """`torch.jit.script(model)` of a model whose BatchNorm layers the conversion replaces."""
    normalised = frozenset(members(model for model in models if model.batch_norm and not model.wrapped))
    for event in run.of("export"):
        call = event.node
        function = run.values.get(call.func, NOTHING) if isinstance(call, ast.Call) else NOTHING
        if External("torch.jit.script") in function.things and normalised & keys(unwrapped(event.value)):
            message = (
                "cannot compile SyncBatchNorm, which takes the place of BatchNorm on GPUs: use torch.jit.trace, or "
                "load what is saved into a new model and compile that"
            )
            yield Concern("AD402", event.source, call, message, Severity.WARNING)


def _weighted(source: Source, node: ast.AST, option: str) -> Concern:
    message = (
        f"the loss is a mean weighted by {option}: each rank divides by the weights of its own samples, so gradients "
        "differ slightly from those of one process"
    )
    return Concern("AD602", source, node, message, Severity.WARNING)


def _sums(run: Interpreter) -> Iterator[Site]:
    """Losses that are sums over samples: averaging gradients over ranks divides them by the number of ranks."""
    seen: set[ast.AST] = set()
    for event in run.events:
        if event.kind == "backward" and event.value.spread in (SUM, COUNT) and event.node not in seen:
            seen.add(event.node)
            assert isinstance(event.node, ast.Call)
            node = event.node.func.value if isinstance(event.node.func, ast.Attribute) else event.node.args[0]
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "scale"
                and node.args
            ):
                node = node.args[0]
            yield Site(event.source, node)


def _drawn_alike(run: Interpreter, varied: frozenset[str], shared: frozenset[ast.AST]) -> Iterator[Concern]:
    """What is drawn for one of a rank's samples after the other, where ranks are seeded alike."""
    if _is_distributed(run):
        return
    for event in [*randomness.drawn_alike(run, varied, shared)][:1]:
        code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
        message = (
            f"{code} draws for this rank's samples, and all ranks draw alike: what is drawn repeats from rank to rank "
            "within a batch; draw for the whole batch before it is shared out, or from a generator seeded by rank"
        )
        yield Concern("AD702", event.source, event.node, message, Severity.WARNING)


def _amplified(run: Interpreter) -> tuple[Site, ...]:
    """Where gradients of samples are taken of means over a rank's, and a loss or report counts how large they are."""
    ends = (each for each in run.events if each.kind in {"backward", *escapes.SINKS})
    found = [origin for event in ends for origin in event.value.origins if isinstance(origin, Amplified)]
    places = {each.node: each.source for each in found}
    whole = _taken_of_whole_data(run)
    return tuple(Site(places[node], node) for node in run.values if node in places and node not in whole)


def _taken_of_whole_data(run: Interpreter) -> set[ast.AST]:
    """Where gradients are taken with regard to samples that every rank has in full, as attacks on a test set do."""
    calls = {event.node for event in run.of("autograd_grad") if not event.value.spread.is_local}
    return calls | {event.node for event in run.of("gradient") if not event.value.things}


def _amplified_in_part(run: Interpreter) -> Iterator[Concern]:
    """Gradients that are taken of samples that are shared out, and of others that are not."""
    whole = _taken_of_whole_data(run)
    places = {o.node: o.source for e in run.of("backward") for o in e.value.origins if isinstance(o, Amplified)}
    for node in (each for each in run.values if each in places and each in whole):
        message = (
            "of a mean over a rank's samples, each of them has as many times its gradient as there are ranks, but this "
            "is also taken of data that every rank has in full: divide the loss by the number of ranks in training"
        )
        yield Concern("AD602", places[node], node, message, Severity.WARNING)


def _draw_sites(run: Interpreter, draws: frozenset[object]) -> Iterator[Draw]:
    seen: set[ast.AST] = set()
    for event in run.of("draw"):
        for thing in event.value.things:
            if isinstance(thing, Draw) and id(thing.node) in draws and thing.node not in seen:
                if not _is_shared(thing, run):
                    seen.add(thing.node)
                    yield thing


def _is_shared(draw: Draw, run: Interpreter) -> bool:
    """Whether the script already takes the rank's share of what it draws."""
    parent = draw.source.parents.get(draw.node)
    if isinstance(parent, ast.Call):
        return draw.node in parent.args and any(draw in event.value.origins for event in run.of("share"))
    if not isinstance(parent, ast.Subscript) or not isinstance(parent.slice, ast.Slice) or parent.slice.lower is None:
        return False
    return run.values.get(parent.slice.lower, NOTHING).spread is Spread.RANK


def _downloads(prepared: list[Site], run: Interpreter) -> Iterator[tuple[Site, Site]]:
    """Runs of neighbouring statements that prepare data, each with its first and last."""
    statements = {site.node: site.source for site in prepared}
    taken: set[ast.AST] = set()
    for site in sorted(prepared, key=lambda s: _at(run, s)):
        if site.node in taken:
            continue
        assert isinstance(site.node, ast.stmt)
        block = site.source.block(site.node)
        last = index = block.index(site.node)
        for later in range(index + 1, len(block)):
            if block[later] in statements:
                last = later
            elif not isinstance(block[later], (ast.Assign, ast.AnnAssign)) or later - last > 4:
                break
        taken.update(block[index : last + 1])
        yield site, Site(site.source, block[last])


def _first_on_rank_zero(prepared: list[Site], run: Interpreter) -> Iterator[ast.stmt]:
    """The statements that the other ranks wait for: in them no rank can communicate."""
    for first, last in _downloads(prepared, run):
        assert isinstance(first.node, ast.stmt) and isinstance(last.node, ast.stmt)
        block = first.source.block(first.node)
        yield from block[block.index(first.node) : block.index(last.node) + 1]


def _before_group(run: Interpreter, guarded: Iterable[Site]) -> Iterator[ast.AST]:
    """What comes before the process group is made: no rank can be asked for."""
    joined = next((event.order for event in run.of("init_process_group")), -1)
    early = {event.node for event in run.events if event.order < joined}
    late = {event.node for event in run.events if event.order > joined}
    for site in guarded:
        inside = set(ast.walk(site.node))
        if not inside.isdisjoint(early) and inside.isdisjoint(late):
            yield site.node


def _turned_buffers(run: Interpreter) -> Iterator[Site]:
    """Buffers with an axis of one element and turned axes: `pe.unsqueeze(0).transpose(0, 1)`."""
    seen: set[ast.AST] = set()
    for event in run.of("buffer"):
        given = [*event.node.args[1:2], *(k.value for k in event.node.keywords if k.arg == "tensor")]  # type: ignore[attr-defined]
        for tensor in given:
            made = [tensor]
            if isinstance(tensor, ast.Name):
                home = event.source.function(tensor)
                bound = [n for n in ast.walk(home) if isinstance(n, ast.Assign)] if home is not None else []
                made = [n.value for n in bound if any(getattr(t, "id", "") == tensor.id for t in n.targets)]
            if tensor not in seen and any(_adds_and_turns(each) for each in made[-1:]):
                seen.add(tensor)
                yield Site(event.source, tensor)


def _adds_and_turns(node: ast.expr) -> bool:
    """Whether a chain of methods adds an axis and turns axes after that, with the memory as it is."""
    if isinstance(node, ast.BinOp):  # `scale * pe.unsqueeze(0).transpose(0, 1)` lies in memory like its operand
        return _adds_and_turns(node.left) or _adds_and_turns(node.right)
    names: list[str] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        names.append(node.func.attr)
        node = node.func.value
    turns = [at for at, name in enumerate(names) if name in ("transpose", "permute", "swapaxes", "movedim")]
    return bool(turns) and "unsqueeze" in names[turns[0] :] and names[0] != "clone"


def _loads(run: Interpreter) -> Iterator[tuple[Site, str]]:
    """`torch.load` calls that would put tensors on the device that saved them, and where to put them instead."""
    seen: set[ast.AST] = set()
    devices: set[Object] = set()
    for event in run.events:
        if event.kind == "make":
            devices |= set(event.value.objects("device"))
        if event.kind != "load" or event.node in seen or not isinstance(event.node, ast.Call):
            continue
        owner = event.function.owner if event.function is not None else None
        if isinstance(owner, Object) and "dataset" in owner.roles:
            continue  # data is made on the CPU
        seen.add(event.node)
        unpacks = any(isinstance(a, ast.Starred) for a in event.node.args) or any(
            not k.arg for k in event.node.keywords
        )
        if argument(event.node, "map_location", 1) is None and not unpacks:
            yield Site(event.source, event.node), _device_name(event, devices) or '"cpu"'


def _device_name(event: Event, made: set[Object]) -> str | None:
    """A variable in reach that holds one of the devices that were ``made`` before."""
    scope: Scope | None = event.scope
    while scope is not None:
        for name, value in scope.names.items():
            if any(thing in made for thing in value.things):
                return name
        scope = scope.parent
    return None


def _accepts_disable(site: Site, run: Interpreter) -> bool:
    """A fallback for tqdm may not know its arguments, and `**options` may hold this one."""
    assert isinstance(site.node, ast.Call)
    if any(keyword.arg is None for keyword in site.node.keywords):
        return False
    for thing in run.values.get(site.node.func, NOTHING).things:
        if isinstance(thing, Function) and not isinstance(thing.node, ast.Lambda):
            names = {a.arg for a in (*thing.node.args.args, *thing.node.args.kwonlyargs)}
            if thing.node.args.kwarg is None and "disable" not in names:
                return False
    return True


def _unordered(run: Interpreter, prepared: frozenset[ast.AST]) -> Iterator[Unordered]:
    """Where all ranks together put a set in order. Of what is sorted or counted right away the order is none."""
    seen: set[ast.AST] = set()
    for event in run.of("ordered"):
        early = event.source is not run.project.entry and not event.calls
        called_back = any(call.node is None for call in event.calls)
        if event.node in seen or event.on_one_rank or early or called_back or randomness.is_per_sample(event):
            continue
        seen.add(event.node)
        parent = event.source.parents.get(event.node)
        named = parent.func if isinstance(parent, ast.Call) and event.node in parent.args else None
        if isinstance(named, ast.Name) and named.id in ("sorted", "len", "set", "sum", "max", "min", "any", "all"):
            continue
        waiting = regions.within(event, prepared)
        if not waiting or not regions.is_kept_for_others(event, run):
            yield Unordered(Site(event.source, event.node), event.detail.const is True, waiting)


def _devices(project: Project) -> Iterator[Site]:
    """Spelled-out device numbers: `"cuda:0"`, `.cuda(0)`."""
    for source in project.sources:
        if source.text.find("cuda") < 0:
            continue
        for node in ast.walk(source.tree):
            if (
                (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and node.value.startswith("cuda:")
                    and node.value[5:].isdigit()
                )
                or isinstance(node, ast.expr)
                and _spells_device(node)
            ):
                yield Site(source, node)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "cuda"
                and (node.args or any(k.arg == "device" for k in node.keywords))
            ):
                first = node.args[0] if node.args else None
                if (
                    isinstance(first, ast.Constant)
                    and isinstance(first.value, int)
                    or isinstance(first, (ast.Attribute, ast.Name))
                    and "gpu" in ast.unparse(first).lower()
                ):
                    yield Site(source, node)


def _spells_device(node: ast.expr) -> bool:
    """`f"cuda:{gpu}"`, `"cuda:{}".format(gpu)`, `"cuda:%d" % gpu`, `"cuda:" + gpu`"""
    text: ast.expr | None = None
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        text = node.values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.Add)):
        text = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = node.func.value
    named = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return named and isinstance(text, ast.Constant) and text.value in ("cuda:", "cuda:{}", "cuda:%d", "cuda:%s")


def _hidden_devices(project: Project) -> Iterator[Site]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = ...` hides the other ranks' devices."""
    for source in project.sources:
        for node in ast.walk(source.tree) if "CUDA_VISIBLE_DEVICES" in source.text else ():
            if isinstance(node, ast.Assign) and _is_visible_devices(node.targets[0]):
                yield Site(source, node)


def _is_visible_devices(node: ast.expr) -> bool:
    key = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == "CUDA_VISIBLE_DEVICES"


def _asked_devices(hidden: Iterable[Site]) -> Iterator[tuple[Site, ast.expr]]:
    """Where a script reads what it has set there, with what that was: `len(os.environ["CUDA_VISIBLE_DEVICES"])`."""
    for site in hidden:
        assert isinstance(site.node, ast.Assign)
        value = site.node.value
        plain = isinstance(value, (ast.Constant, ast.Name, ast.Attribute))
        for node in ast.walk(site.source.home(site.node)):
            asked = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_visible_devices(node)
            if plain and asked and isinstance(node, ast.expr) and node.lineno > site.node.lineno:
                yield Site(site.source, node), value


def _setup(script: TrainingScript, run: Interpreter) -> Setup | None:
    """Before the first statement of the entry script that needs the process group, as late as an expert would."""
    entry = run.project.entry
    body = entry.tree.body
    if not body:
        return None
    guard = next((s for s in body if isinstance(s, ast.If) and _is_main_guard(s.test)), None)
    start = next((s for s in body if not is_preface(s)), body[-1])
    named = {node for site in script.named_apart for node in ast.walk(site.node)}
    needed = [
        e
        for e in run.events
        if e.kind in NEEDS_GROUP and not (e.kind == "make" and not _matters(e)) or e.kind == "clock" and e.node in named
    ]
    found = [top for event in needed if (top := _top_statement(event, entry)) is not None and not is_preface(top)]
    first = next((top for top in found if not isinstance(top, (ast.FunctionDef, ast.ClassDef))), None)
    if first is None and guard is None and found and isinstance(found[0], ast.FunctionDef):
        return Setup(entry, _without_docstring(found[0].body), found[0])  # what a launcher or an entry point calls
    define = below_imports(entry)
    if guard is not None and (first is None or first is guard or body.index(first) >= body.index(guard)):
        return Setup(entry, guard.body[0], min(define, guard, key=body.index))
    before = first if first is not None else start
    return Setup(entry, before, min(define, before, key=body.index))


def _without_docstring(body: list[ast.stmt]) -> ast.stmt:
    return next((s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))), body[-1])


NEEDS_GROUP = frozenset(
    (
        "seed loader download mkdir save open writer optimizer forward backward move print "
        "log file_handler log_config random random_number numpy_draw search set_device progress make ordered"
    ).split()
)


def _matters(event: Event) -> bool:
    return any(isinstance(t, Object) and bool(t.roles & {"module", "dataset", "device"}) for t in event.value.things)


def _top_statement(event: Event, entry: Source) -> ast.stmt | None:
    """The top-level statement of the entry script that an event happens in."""
    chain = [(call.node, call.source) for call in event.calls if call.node is not None]
    for node, source in [*chain, (event.node, event.source)]:
        if source is entry:
            top: ast.AST = node
            for ancestor in entry.ancestors(node):
                if isinstance(ancestor, ast.Module):
                    return top if isinstance(top, ast.stmt) else None
                top = ancestor
    return None


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
