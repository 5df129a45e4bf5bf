"""What has been found of a project, put together."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from autodist import (
    averaging,
    metrics,
    parting,
    previews,
    randomness,
    regions,
    searching,
    turns,
    unwraps,
    while_importing,
)
from autodist.accumulation import deferrals
from autodist.analyze import hooks
from autodist.analyze.batch_sizes import whole_and_shared
from autodist.analyze.beginning import (
    downloads,
    first_on_rank_zero,
    hoisted,
    import_time_concerns,
    only_saves,
    order_of,
    setup_of,
    stays_below,
    while_imported,
)
from autodist.analyze.bucket_views import in_buckets
from autodist.analyze.checkpoints import checkpoint, lost_prefixes, prefixed_keys
from autodist.analyze.device_numbers import device_numbers
from autodist.analyze.devices import asked_devices, hidden_devices, loads_of, names_device, takes_gpu
from autodist.analyze.going_apart import gone_apart
from autodist.analyze.group import gathered_without_group, sometimes_joined, without_group
from autodist.analyze.handmade import (
    draw_sites,
    drawn_alike,
    drawn_once,
    generators_alike,
    left_seeded,
    masks_alike,
    picked_apart,
)
from autodist.analyze.launched import ends_at_once, is_distributed, never_joined
from autodist.analyze.loaders import evaluation_loaders, evaluation_samplers, sampler_concerns, sharded_loaders
from autodist.analyze.losses import (
    amplified,
    amplified_in_part,
    gradients_alone,
    loss_concerns,
    normalised_twice,
    pieces,
    sums,
)
from autodist.analyze.modules import (
    compiled_statistics,
    derived_norms,
    differentiated_norms,
    followed_in_part,
    graphed,
    kept_statistics,
    layer_tests,
    norms_in_lists,
    own_buffers,
    penalties_alone,
    rescaled_rows,
    turned_buffers,
    unwrapped_uses,
)
from autodist.analyze.picked import cut_into_pieces
from autodist.analyze.reductions import filled_up, leftover, reduction_at
from autodist.analyze.sets import unordered
from autodist.analyze.squeezed import columns, in_small_batches
from autodist.common_draws import common_draws, undecided
from autodist.files import answers, fetching, lifting, naming, preparing, waiting, writing
from autodist.fsdp import shards, unshardable
from autodist.interpreter import Event, Interpreter
from autodist.launchers import launcher, without
from autodist.losses import refilled, unbatched, wholes
from autodist.models import modules_behind, shuttles
from autodist.models.sparse import sparse_over_nccl
from autodist.placement import Partial
from autodist.project import Project
from autodist.randomness.drawing import draw_events
from autodist.reduction import Reduction
from autodist.rule import Severity
from autodist.script import Concern, Model, Shards, Site, TrainingScript, Unseeded
from autodist.solve import sizes
from autodist.solve.losses import Losses
from autodist.solve.search import Cut
from autodist.solve.shares import above, joined_in_full
from autodist.source import walk
from autodist.values import NOTHING, Draw, External, Function, Path_


def assembled(
    project: Project,
    first: Interpreter,
    run: Interpreter,
    models: list[Model],
    trained: set[tuple[int, Path_]],
    draws: frozenset[object],
    batch_sizes: list[Site],
    placed: list[Cut],
    left: list[Cut],
    held: list[tuple[Site, ast.stmt]],
    losses: Losses,
) -> TrainingScript:
    """The script as the rules see it, from the analyses with (`run`) and without (`first`) what was decided."""
    shared_draws = (*draw_sites(run, draws), *wholes.dealt_out(run))
    before = {each.node for each in above(run.runs.program, (*run.plan.taken, *run.plan.batches))}
    dealt = frozenset[ast.AST]([*(draw.node for draw in shared_draws), *before])
    loaders, concerns = sharded_loaders(first, run, trained)
    loaders = [randomness.with_shared_order(loader, run, models) for loader in loaders]
    prepared, alone = preparing.preparations(run)
    alone = preparing.not_guarded_within(alone, prepared, run)
    outside = frozenset(site.node for site in (*prepared, *alone))
    waits = tuple(waiting.for_rank_zero(run, outside))
    guards, opens = writing.writes(run, outside, naming.folders_apart(run))
    sharded = shards.shards(run, models) if run.plan.bare else Shards()
    needed = {p.node: p.source for p in placed} | {s.node: s.source for s in (*sharded.saves, *sharded.reads)}
    guards, opens = writing.opened(guards, opens, needed)
    guards = [site for site in guards if not only_saves(site, sharded)]
    guards = lifting.lifted(guards, run, needed, waits)
    alone = lifting.lifted(alone, run, needed, waits)
    anew = [site for site in alone if waiting.is_read_on_each_node(site, run)]
    alone_there = [*guards, *writing.where_a_writer_is(guards, run)]
    if not is_distributed(run) or run.plan.bare:
        hoists, stuck = shards.hoists(run, models, sharded, alone_there)
        sharded = replace(sharded, hoists=(*held, *hoists))
        concerns += stuck
    guarded = {site.node for site in (*alone_there, *alone)}
    answering, unanswered = _answering(run, outside, guards, opens, needed)
    concerns += unanswered
    by_one = {event.node for event in run.events if event.on_one_rank}
    reported = [
        (
            _is_on_one_rank(p, by_one, run),
            reduction_at(p, hoisted(p, guarded) or answers.before(p.node, p.source, answering), first),
        )
        for p in placed
    ]
    reductions = [each for alone, each in reported if not alone and not stays_below(each)]
    sharded = _without_reduced(sharded, reductions)
    concerns += filled_up(reductions)
    early = [*while_imported(run, loaders, [*guards, *answering.values(), *opens, *prepared], models).values()]
    concerns += import_time_concerns(early, run, models)
    concerns += leftover(left, run)
    concerns += unshardable.concerns(run, models) if run.plan.bare else ()
    concerns += gathered_without_group(run, sharded)
    concerns += sparse_over_nccl(models) if not run.plan.bare and names_device(project) else ()
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
        if alone or stays_below(each)
    ]
    concerns += never_joined(run)
    concerns += followed_in_part(run)
    concerns += loss_concerns(run, losses)
    concerns += cut_into_pieces(run)
    concerns += sampler_concerns(run)
    in_training = previews.passes_in_training(run)
    previewed, missed = previews.previews(in_training, run, models, losses)
    followers, unfollowed = previews.unsynchronised(in_training, run, models)
    concerns += [*missed, *unfollowed]
    averaged, unaveraged = averaging.averaged(run, models)
    concerns += unaveraged if not run.plan.bare else ()
    if wholes.draws(run) and not is_distributed(run) and (fitted := unbatched.fitted_by_hand(run)) is not None:
        concerns.append(Concern("AD902", fitted[0].source, fitted[0].node, fitted[1], Severity.REFUSAL))
    concerns += compiled_statistics(run, models)
    concerns += graphed(run, models) if not run.plan.bare else ()
    concerns += unwrapped_uses(run, models)
    concerns += derived_norms(run, models)
    concerns += [*differentiated_norms(run, models), *kept_statistics(models), *rescaled_rows(models)]
    read_amplified, own_gradients, unscaled = amplified(run)
    concerns += [*amplified_in_part(run), *unscaled, *gradients_alone(run)]
    concerns += penalties_alone(run, models) if not run.plan.bare else ()
    concerns += [*hooks.reentrant(run), *hooks.bent(run)] if not is_distributed(run) else ()
    concerns += hooks.concerns(run) if run.plan.bare or not is_distributed(run) else ()
    prefixed = list(prefixed_keys(run, models))
    concerns += lost_prefixes(prefixed)
    concerns += turns.concerns(loaders)
    met = frozenset({*needed, *(site.node for site in waits)})
    concerns += parting.concerns(run, met) if not is_distributed(run) else ()
    concerns += whole_and_shared(run)
    concerns += unwraps.concerns(run, run.catalog.knows)
    concerns += own_buffers(run) if not is_distributed(run) else ()
    kinds: dict[str, list[Event]] = {}
    for event in run.events:
        kinds.setdefault(event.kind, []).append(event)

    def sites(*names: str) -> tuple[Site, ...]:
        unique = {e.node: Site(e.source, e.node) for name in names for e in kinds.get(name, []) if not e.on_one_rank}
        return tuple(sorted(unique.values(), key=lambda s: order_of(run, s)))

    hidden = tuple(hidden_devices(project))
    shuttling = shuttles((model.object for model in models), run)
    concerns += shuttling.concerns
    meant, maybe = unwraps.found(run, frozenset(model.object.key for model in models if model.may_be_frozen))
    seeded = frozenset(randomness.seeded(run))
    lone = frozenset(site.node for site in sites("writer") if writing.is_lone_writer(site, run))
    varied = undecided(frozenset(randomness.noise(run, dealt, loaders)), run)
    shares = {site.node for site in batch_sizes}
    alone_or_apart = frozenset(guarded) | outside
    lies = losses.placements
    common, once = common_draws(run, lies, alone_or_apart, dealt, shares) if not is_distributed(run) else ((), ())
    noisy = parting.by_noise(run, frozenset(guarded), outside)
    apart, own_draws, common = (
        ((), frozenset[ast.expr](), common)
        if noisy is None
        else gone_apart(
            run,
            loaders,
            draws | {id(each.node) for each in draw_events(run) if each.loops and each.node in before},
            shared_draws,
            models,
            varied,
            common,
            {site.node for site in once},
            alone_or_apart,
            shares,
        )
    )
    decisions = parting.decisions(run, frozenset(guarded), outside, met) if not is_distributed(run) else ()
    decided = {decision.node for decision in decisions}
    decisions += tuple(each for each in noisy or () if apart and each.node not in decided)
    taken_over = {site.node for site in common}
    read_apart = [each.object.node for each in loaders if not each.iterable]  # workers of a stream must draw alike
    own_generators = [each for each in loaders if randomness.seeds_workers(each, run)]
    for_all = () if is_distributed(run) else tuple(randomness.drawn_for_all(run, apart, dealt, shares))
    batch_sizes = [site for site in batch_sizes if all(site.node not in each.divided for each in for_all)]
    of_samples = {} if is_distributed(run) else randomness.generators_of_samples(loaders, run)
    kept, kept_alike = ((), ()) if is_distributed(run) else randomness.kept_generators(loaders, of_samples, run)
    apart_seeds = [
        randomness.seeds_of(event)
        for event in run.of("unseeded")
        if not event.loops and not randomness.is_per_sample(event, run) and not randomness.reseeds(event)
        if all(event.node is not each.node for each in of_samples)
    ]
    evaluating = [*evaluation_loaders(run, loaders)], [*evaluation_samplers(run, loaders)]
    shuffled = [*evaluating[0], *evaluating[1], *(Site(each.source, each.node) for each in loaders)]
    shuffled += [Site(drawn.source, drawn.node) for each in loaders for drawn in each.unseeded_samplers]
    first_there = frozenset[ast.AST](first_on_rank_zero(prepared, run))
    orders = (
        ()
        if is_distributed(run)
        else randomness.order_seeds(
            run, shuffled, apart, "torch" in seeded, first_there, frozenset(guarded) | {each.node for each in alone}
        )
    )
    squeezed = columns(run) if not is_distributed(run) else []
    script = TrainingScript(
        project,
        run.values,
        run.runs.program,
        distributed=is_distributed(run),
        sometimes_joined=sometimes_joined(run),
        ends_at_once=tuple(dict.fromkeys(ends_at_once(run))),
        launcher=without(launcher(run), run.plan.dropped),
        prints=any(not event.on_one_rank for kind in ("print", "log", "progress") for event in kinds.get(kind, [])),
        models=tuple(replace(model, takes_gpu=takes_gpu(model.object, run)) for model in models),
        loaders=tuple(loaders),
        evaluation_loaders=tuple(evaluating[0]),
        evaluation_samplers=tuple(evaluating[1]),
        order_seeds={each.node: each for each in orders},
        draws=shared_draws,
        odd_tails=dict(_odd_tails(shared_draws, run)),
        own_draws=own_draws,
        batch_sizes=(*batch_sizes, *(Site(draw.source, draw.node) for draw in wholes.draws(run) if draw.batch)),
        squeezed=tuple(squeezed),
        refitted=tuple(refilled.refitted(run, batch_sizes)),
        joined_in_full=tuple(Site(*each) for each in joined_in_full(run.runs.program, run.placements)),
        counts_samples=run.counts_samples,
        goes_by_rank=run.goes_by_rank,
        comes_from_model=lambda node: bool(modules_behind(run, node)),
        axes=run.axes,
        adds_up=any(isinstance(each, Partial) and each.reduce == "sum" for each in run.placements.of.values()),
        wholes=tuple(draw for draw in wholes.draws(run) if not draw.batch),
        row_means=tuple(wholes.row_means(run, losses)),
        averaged=tuple(averaged),
        lacks_gradients=averaging.lacks_gradients(run, models, shared_draws),
        stepped_by_hand=tuple(averaging.stepped_by_hand(run)[0]) if not is_distributed(run) else (),
        sums=tuple(sums(run, losses)) if not is_distributed(run) else (),
        pieces=tuple(pieces(run, losses)) if not is_distributed(run) else (),
        amplified=read_amplified,
        own_gradients=own_gradients,
        previews=tuple(previewed),
        followers=tuple(followers),
        deferrals=() if run.plan.bare or is_distributed(run) else tuple(deferrals(run, models, sharded=False)),
        reductions=tuple(reductions),
        unwraps=tuple(meant),
        shuttled=shuttling.calls,
        states_on_cpu=shuttling.states,
        saved_wrappers=unwraps.saved_wrappers(run),
        wrapper_tests=unwraps.wrapper_tests(run),
        layer_tests=tuple(layer_tests(run, models)),
        prefixed_loads=tuple(dict.fromkeys(filter(None, map(checkpoint, prefixed)))),
        maybe_wrapped=maybe,
        in_buckets=not run.plan.bare and not is_distributed(run) and in_buckets(run, models),
        guards=tuple(sorted(guards, key=lambda s: order_of(run, s))),
        answering=tuple(sorted(answering.values(), key=lambda s: order_of(run, s))),
        folders=tuple(dict.fromkeys(writing.folders(run))),
        opens=tuple(opens),
        writers=sites("writer"),
        lone_writers=lone,
        places_of_writers=(
            naming.places_of_writers(run, [*alone_there, *opens, *sites("file_handler"), *sites("log_config")])
            if lone
            else ()
        ),
        downloads=tuple(downloads(prepared, run)),
        fetched_again=fetching.fetched_again(run),
        waits=waits,
        first_writes=tuple(
            dict.fromkeys(
                (
                    *waiting.first_writes(run, waits, [*guards, *opens]),
                    *waiting.looked(run, guards, outside),
                    *waiting.numbered(run, guards),
                )
            )
        ),
        rewrites=tuple(dict.fromkeys(waiting.rewrites(run, [*guards, *opens], outside))),
        turned_buffers=tuple(turned_buffers(run)),
        data_parallel_calls=sites("data_parallel_call"),
        prepared_alone=tuple(site for site in alone if site not in anew),
        fetched_anew=tuple(anew),
        loads=tuple(loads_of(run)),
        progress=tuple(s for s in sites("progress") if _accepts_disable(s, run)),
        file_handlers=tuple(s for s in sites("file_handler") if not writing.is_chosen_by_rank(s.node, run)),
        log_configs=tuple(s for s in sites("log_config") if not writing.is_chosen_by_rank(s.node, run)),
        uses_logging=any(not _is_loguru(event, run) for kind in ("log", "log_config") for event in kinds.get(kind, [])),
        uses_loguru=any(_is_loguru(event, run) for event in kinds.get("log", [])),
        seeded=seeded,
        drawn=frozenset([*randomness.drawn(run), *randomness.drawn_for_batches(loaders, run)]),
        unordered=tuple(unordered(run, frozenset(first_there))),
        named_apart=naming.named_apart(run),
        asked=tuple(sites("asked")),
        counting_whole=metrics.counting_whole(run) if not is_distributed(run) else (),
        decisions=decisions,
        unseeded=tuple(_unseeded((site for calls, _ in apart_seeds for site in calls), run, first_there)),
        clocked=tuple(_unseeded((site for _, values in apart_seeds for site in values), run, first_there)),
        reseeded=tuple(dict.fromkeys(Site(e.source, e.node) for e in run.of("unseeded") if randomness.reseeds(e))),
        search=searching.search(run),
        diverge=apart,
        noise=varied,
        drawn_for_all=for_all,
        common_draws=common if apart else (),
        sample_generators=of_samples,
        kept_generators=kept,
        worker_seeds=tuple(Site(*each) for each in run.runs.generators.seeds_of_workers(read_apart)),
        worker_generators=tuple(Site(each.source, each.node) for each in own_generators if apart and not each.mixed),
        names_device=names_device(project),
        norms_in_lists=not is_distributed(run) and norms_in_lists(run, models),
        default_device=bool(run.of("default_device")),
        devices=tuple(device_numbers(run)),
        hidden_devices=hidden,
        asked_devices=tuple(asked_devices(hidden)),
        set_devices=sites("set_device"),
        concerns=(
            *concerns,
            *naming.concerns(run),
            *picked_apart(run, apart, varied, common),
            *drawn_once((*once, *randomness.batches_apart(loaders, run)) if apart else ()),
            *left_seeded(run),
            *generators_alike(kept_alike),
            *(searching.given_to_unknown(run) if not is_distributed(run) else ()),
            *(normalised_twice(run) if not is_distributed(run) else ()),
            *in_small_batches(run, loaders, squeezed),
            *masks_alike(
                shared_draws,
                loaders,
                not is_distributed(run)
                and randomness.drops_alike(
                    run, models, apart, draws, loaders, dealt | {each.node for each in for_all}, taken_over
                ),
            ),
            *drawn_alike(
                run,
                varied | {"torch", "cuda"} if apart else frozenset(),
                dealt | {each.node for each in for_all},
                loaders,
                () if apart and not any(each.mixed for each in own_generators) else own_generators,
            ),
        ),
        shards=sharded,
    )
    setup = setup_of(script, run, early)
    silenced = while_importing.silenced(run, setup) if models and not script.distributed else None
    alone_on_rank_zero = (
        *(script.guards + script.opens + script.folders + script.writers + script.progress),
        *(script.file_handlers + script.log_configs + script.places_of_writers + script.waits),
    )
    groupless = without_group(run, alone_on_rank_zero, [*waiting.read_back(run, outside)] if script.distributed else ())
    return replace(script, setup=setup, silenced=silenced, without_group=groupless)


def _unseeded(sites: Iterable[Site], run: Interpreter, waiting: frozenset[ast.AST]) -> Iterator[Unseeded]:
    """Seeds that differ by process, and whether all ranks come there at once: not while a module is imported, nor where
    some are ``waiting`` for others."""
    for site in dict.fromkeys(sites):
        assert isinstance(site.node, ast.expr)
        inside = {*walk(site.node)}
        events = [event for event in run.events if event.node in inside]
        apart = (
            event.on_one_rank
            or event.source is not run.project.entry
            and not event.calls
            or any(call.node is None for call in event.calls)
            or regions.within(event, waiting)
            for event in events
        )
        yield Unseeded(site.source, site.node, bool(events) and not any(apart))


def _without_reduced(sharded: Shards, reductions: list[Reduction]) -> Shards:
    """Without the forward passes that are run ahead of a guarded statement with what is reduced there:
    `torch.save(model(x).detach(), path)`."""
    reduced = {node for each in reductions if each.hoist is not None for node in walk(each.node)}
    reads = {site.node for site in sharded.reads}
    kept = (each for each in sharded.hoists if each[0].node not in reduced or not reads.isdisjoint(walk(each[0].node)))
    return replace(sharded, hoists=tuple(kept)) if reduced else sharded


def _answering(
    run: Interpreter,
    prepared: frozenset[ast.AST],
    guards: Iterable[Site],
    opens: Iterable[Site],
    needed: Collection[ast.AST],
) -> tuple[dict[ast.AST, Site], list[Concern]]:
    """The calls that write a file and whose results all ranks are given, and those of which rank 0 cannot be given
    alone what all ranks compute together."""
    found, left = {}, []
    for event in run.of("hands_over"):
        if not event.on_one_rank and not regions.within(event, prepared):
            message = "every rank hands over what writes a file here: do so on rank 0 alone"
            left.append(Concern("AD301", event.source, event.node, message, Severity.WARNING))
    for site in answers.answers(run, prepared, guards, opens):
        inside = [node for node in walk(site.node) if node in needed]
        if without_group(run, [site]) or any(
            node is site.node or answers.is_repeated(site.node, site.source) for node in inside
        ):
            message = "every rank writes this, since all go on with what it gives: write it in a statement of its own"
            left.append(Concern("AD301", site.source, site.node, message, Severity.WARNING))
        else:
            found[site.node] = site
    return found, left


def _accepts_disable(site: Site, run: Interpreter) -> bool:
    """A fallback for tqdm may not know its arguments, and `**options` may hold this one. Bars of fastprogress and
    barbar are printed, which other ranks do not do anyway."""
    assert isinstance(site.node, ast.Call)
    if any(keyword.arg is None for keyword in site.node.keywords):
        return False
    for thing in run.values.get(site.node.func, NOTHING).things:
        if isinstance(thing, External) and thing.name.startswith(("fastprogress.", "barbar.", "progressbar.")):
            return False
        if isinstance(thing, Function) and not isinstance(thing.node, ast.Lambda):
            names = {a.arg for a in (*thing.node.args.args, *thing.node.args.kwonlyargs)}
            if thing.node.args.kwarg is None and "disable" not in names:
                return False
    return True


def _is_loguru(event: Event, run: Interpreter) -> bool:
    """`logger.info(...)` of a library that knows nothing of Python's own logging."""
    function = event.node.func if isinstance(event.node, ast.Call) else None
    asked = run.values.get(function.value, NOTHING) if isinstance(function, ast.Attribute) else NOTHING
    return any(isinstance(thing, External) and thing.name.startswith("loguru.") for thing in asked.things)


def _odd_tails(draws: Iterable[Draw], run: Interpreter) -> Iterator[tuple[ast.AST, int]]:
    """The slices whose last one is odd, and how many samples that has."""
    for draw in draws:
        made = run.runs.program.at(draw.node).operations if isinstance(draw.node, ast.Subscript) else ()
        for left in {sizes.left_over(each, run.placements) for each in made}:
            if left is not None and left % 2:
                yield draw.node, left


def _is_on_one_rank(cut: Cut, by_one: set[ast.AST], run: Interpreter) -> bool:
    """Whether only rank 0 comes to what is made global: where it is shown, unless a function shows it there that all
    ranks give it to, or a training loop that all of them run puts it into a list."""
    shown, source = cut.demand.operation, cut.source
    if shown.node not in by_one or not by_one.isdisjoint(walk(source.statement(cut.node))):
        return shown.node in by_one
    if source.function(cut.node) is not shown.source.function(shown.node):
        return False
    around = [*source.ancestors(cut.node)]
    guards = {each for each in shown.source.ancestors(shown.node) if isinstance(each, (ast.If, ast.IfExp))}
    loops = [each for each in around if isinstance(each, (ast.For, ast.While))]
    backward = {event.node for event in run.of("backward")}
    learning = [each for each in loops if not backward.isdisjoint(walk(each))]
    leaves = any(isinstance(inner, ast.Continue) for each in learning for inner in walk(each))
    return not learning or leaves or not guards.isdisjoint(around)
