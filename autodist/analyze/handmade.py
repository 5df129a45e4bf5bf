"""Batches that a step makes by hand: indices that are drawn, noise, slices of the data."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Iterator

from autodist import randomness
from autodist.analyze.batch_sizes import shapes_tensors, told_sizes
from autodist.analyze.launched import is_distributed
from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.placement import Replicate
from autodist.placement.samples import OF_TIME
from autodist.program import EMPTY, closure, held
from autodist.rule import Severity
from autodist.script import Concern, Loader, Site
from autodist.solve.steps import given, steps_of
from autodist.source import Source, all_of, argument, counted_of, last_name, shortened, walk
from autodist.spread import SAME
from autodist.values import NOTHING, Draw, Function, Index, Items, Object, Path_, Value, drawn_from, is_clock

SEQUENCES_FIRST = ("LSTM", "GRU", "RNN", "Transformer", "MultiheadAttention")


def has_no_batches(run: Interpreter) -> bool:
    """Whether neither a loader nor what is drawn anew in each step reaches a gradient."""
    backwards = run.of("backward")
    if not backwards or any(event.value.spread is not SAME for event in backwards):
        return False
    if any(isinstance(origin, Object) for origin in origins_of(run)):
        return False
    return not batch_draws(run)


def made_elsewhere(run: Interpreter) -> bool:
    """Whether a function makes the batches of a step that the script also calls for something else, as for the data of
    a test: it is the step that takes a rank's share of them, not the function."""
    draws = _drawn(run)
    if not all(isinstance(draw.node, ast.Call) for draw in draws):
        return False
    inner = [event.loops[-1] for event in run.of("backward") if event.loops]
    loops, homes = {loop.node for loop in inner}, {loop.source.home(loop.node) for loop in inner}
    makers = {draw.source.function(draw.node) for draw in draws} - {None}
    calls = (
        (call, source) for maker in makers if maker is not None for call, source in run.callers.get(maker, {}).items()
    )
    if any(_sized_oddly(draw, run) for draw in draws):
        return True
    return any(source.home(call) in homes and loops.isdisjoint(source.ancestors(call)) for call, source in calls)


def _sized_oddly(draw: Draw, run: Interpreter) -> bool:
    """Whether a call asks a function for a number of samples that no two ranks can share: `get_batch("val", 1)`."""
    maker = draw.source.function(draw.node)
    if not isinstance(maker, ast.FunctionDef) or not isinstance(draw.size, ast.Name):
        return False
    spec = maker.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    default = dict(zip(reversed(names), reversed(spec.defaults), strict=False)).get(draw.size.id)
    if draw.size.id not in names:
        return False
    place = names.index(draw.size.id) - (names[0] == "self")
    asked = [argument(call, draw.size.id, place) or default for call in run.callers.get(maker, {})]
    counts = [run.values.get(each, NOTHING).const for each in asked if each is not None]
    return any(isinstance(each, int) and each % 2 for each in counts)


def _is_gone_over(draw: Draw) -> bool:
    """Whether the function that draws goes over what it has drawn by number, `for i in range(batch_size): order[i]`: it
    counts the samples of all ranks, and may draw more for each."""
    maker, bound = draw.source.function(draw.node), set(map(ast.unparse, _bound(draw)))
    if maker is None or draw.size is None or not isinstance(draw.node, ast.Call):
        return False
    for loop in all_of(maker, ast.For):
        counts = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "range" and len(loop.iter.args) == 1
        if not counts or ast.unparse(loop.iter.args[0]) != ast.unparse(draw.size):  # type: ignore[attr-defined]
            continue
        items = all_of(loop, ast.Subscript)
        if any(ast.unparse(i.value) in bound and ast.unparse(i.slice) == ast.unparse(loop.target) for i in items):
            return True
    return False


def _draws_for_each(draw: Draw, run: Interpreter) -> bool:
    """Whether the function that draws samples draws more for each of them, `for u in users: negatives.append(...)`: a
    rank that went over its share alone would draw other numbers than it does for the whole batch."""
    maker, bound = draw.source.function(draw.node), set(map(ast.unparse, _bound(draw)))
    if maker is None or not isinstance(draw.node, (ast.Call, ast.ListComp)):
        return False
    loops = (each for each in walk(maker) if isinstance(each, (ast.For, ast.comprehension)))
    over = {loop for loop in loops if any(ast.unparse(each) in bound for each in all_of(loop.iter, ast.expr))}
    drawn = (event for kind in randomness.DRAWS for event in run.of(kind)) if over else ()
    return any(loop.node in over for event in drawn for loop in event.loops)


def along_sequence(run: Interpreter) -> Draw | None:
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


def through_time(run: Interpreter) -> Draw | None:
    """A slice of which a layer takes the first axis for time, so that its rows are no samples."""
    draws = _drawn(run)
    if not draws:
        return None
    along = run.runs.sources(run.runs.program, frozenset(), frozenset()).axis
    time = (getattr(run.placements.of.get(each), "reason", "") for each in steps_of(run.runs.program).reaching)
    return draws[0] if along or OF_TIME in time else None


def _drawn(run: Interpreter) -> list[Draw]:
    """The draws that a step makes its batches of, where no loader does."""
    if any(event.value.spread is not SAME for event in run.of("backward")):
        return []
    return [] if any(isinstance(origin, Object) for origin in origins_of(run)) else batch_draws(run)


def beside_loaders(run: Interpreter) -> tuple[Draw, Event] | None:
    """A step that trains on samples picked by hand alone, where others train on those of a loader."""
    if is_distributed(run) or not any(isinstance(origin, Object) for origin in origins_of(run)):
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


def filled_batch(run: Interpreter) -> tuple[Source, ast.Name] | None:
    """A list that takes samples of a loader by a condition until it counts as many as a batch has, and is trained on:
    `while len(images) < batch_size`. A rank finds its own number of them, and all ranks maybe more than a batch."""
    if is_distributed(run):
        return None
    program = run.runs.program
    counted = {
        thing: (event.source, node.args[0])
        for event in run.of("test")
        if isinstance(event.source.statement(event.node), ast.While)
        for node in walk(event.node)
        if isinstance(node, ast.Call) and last_name(node.func) == "len" and _holds_some(node.args[0], run)
        for thing in program.at(node.args[0]).things
        if isinstance(node.args[0], ast.Name)
    }
    for event in run.of("forward") if counted else ():
        if event.grad and event.loops and isinstance(event.node, ast.Call):
            values = [program.at(each) for each in event.node.args]
            above = closure((op for each in values for op in held(each)), given)
            reached = {thing for each in (*values, *(v for op in above for v in op.operands)) for thing in each.things}
            if (found := next((at for thing, at in counted.items() if thing in reached), None)) is not None:
                return found
    return None


def _holds_some(listed: ast.expr, run: Interpreter) -> bool:
    """Whether a list has been given some of a rank's samples, and not others."""
    picked = (getattr(thing, "picked", EMPTY) for thing in run.runs.program.at(listed).things)
    tests = (run.placements.of.get(op, Replicate()) for test in picked for op in test.operations)
    return any(each != Replicate() for each in tests)


def origins_of(run: Interpreter) -> list[Object | Draw]:
    """The loaders and draws whose samples reach a gradient."""
    found: dict[Object | Draw, None] = {}
    for event in run.events:
        if event.kind == "backward":
            given = [each for each in event.value.origins if isinstance(each, (Object, Draw))]
            given = [each for each in given if isinstance(each, Draw) or each.key not in run.plan.held]
            data = [each for each in given if not is_clock(each) and not (isinstance(each, Draw) and each.whole)]
            for origin in sorted(data, key=lambda o: (o.node.lineno, o.node.col_offset)):
                found.setdefault(origin)
    if not found:  # as the graph tells
        training = {each.node for each in run.runs.sources(run.runs.program, frozenset(), frozenset()).training}
        made = (each for event in run.of("loader") for each in event.value.objects("loader"))
        found |= {each: None for each in made if each.node in training and each.key not in run.plan.held}
    idle = _only_read_without_gradients(run)
    loaders = [each for each in found if isinstance(each, Object) and "loader" in each.roles]
    if any(each.key not in idle for each in loaders):
        return [each for each in found if each not in loaders or each.key not in idle]
    return list(found)


def read_ahead(run: Interpreter) -> frozenset[tuple[int, Path_]]:
    """Loaders that are read ahead of training, where steps learn from no other ones: `x, y = next(iter(loader))`."""
    around = {loop.node for event in run.of("backward") for loop in event.loops}
    early: dict[tuple[int, Path_], bool] = {}
    for event in (each for kind in ("iterate", "iter", "listed") for each in run.of(kind)):
        ahead = around.isdisjoint((event.node, *(loop.node for loop in event.loops)))
        for loader in drawn_from(event.value):
            early[loader.key] = early.get(loader.key, True) and ahead and not run.is_sharded(loader)
    learned = {each.key for each in origins_of(run) if isinstance(each, Object)}
    return frozenset(learned) if learned and all(early.get(key, False) for key in learned) else frozenset()


def _only_read_without_gradients(run: Interpreter) -> set[tuple[int, Path_]]:
    """Loaders of an evaluation, whose losses are kept where those of training are: `self.losses["mse"] = ...`."""
    graded: dict[tuple[int, Path_], bool] = {}
    for event in (each for kind in ("iterate", "iter", "listed") for each in run.of(kind)):
        for loader in drawn_from(event.value):
            graded[loader.key] = graded.get(loader.key, False) or event.grad
    return {key for key, grad in graded.items() if not grad}


def batch_draws(run: Interpreter) -> list[Draw]:
    """Draws made anew for each step: in the innermost loop around a backward, or called from there."""
    loops = {loop.node for event in run.of("backward") for loop in event.loops[-1:]}
    around = {loop.node for event in run.of("backward") for loop in event.loops}
    origins = set(origins_of(run))
    unknown = not origins and bool(run.of("draw")) and not is_distributed(run)
    traced = _traced_draws(run) if unknown else frozenset()
    found = []
    for event in run.of("draw"):
        cut = event.loops and event.loops[-1].node not in around and _steps_along(event.node, event.loops[-1].node, run)
        if event.inside_forward or cut or _precedes_batches(event):
            continue
        if any(loop.node in loops for loop in event.loops[-2:]) or _makes_batches(event):
            drawn = (t for t in event.value.things if isinstance(t, Draw))
            found += [t for t in drawn if t in origins or t.node in traced]
    found = [draw for draw in dict.fromkeys(found) if draw not in run.feature_draws]
    # an order of all samples, which is then cut into batches, is not itself a batch
    orders = _cut_into_batches(run)
    slices = [draw for draw in found if isinstance(draw.node, ast.Subscript)]
    chosen = slices or [draw for draw in found if not (draw.noise or draw.permutes or _names_of(draw) & orders)]
    if any(_is_gone_over(draw) or _draws_for_each(draw, run) for draw in chosen):
        return []
    noise = [draw for draw in found if draw.noise and draw not in chosen]
    if any(_counts_what_all_have(draw, run) for draw in chosen or noise):
        return []
    sizes = {_size_of(draw, run) for draw in chosen or noise}
    if not chosen and (
        len(sizes) > 1
        or _takes_sequences_first(run)
        or not all(_only_sizes_batches(draw, noise, run) for draw in noise)
        or _learns_beside(found, loops, run)
    ):
        return []
    taken = [*chosen, *(draw for draw in noise if draw.size is not None and _size_of(draw, run) in sizes)]
    beside = any(_counts_others(draw, taken, run) for draw in taken)
    return [] if beside or _are_of_some_alone(taken, run) else taken


@once_a_run
def _traced_draws(run: Interpreter) -> frozenset[ast.AST]:
    """What draws the batch of a step, as the program graph tells: through lists and tuples of samples that values do
    not follow, `states, actions = zip(*random.sample(memory, 16))`."""
    return frozenset(each.node for each in run.runs.sources(run.runs.program, frozenset(), frozenset()).batches)


def _counts_others(draw: Draw, taken: list[Draw], run: Interpreter) -> bool:
    """Whether as much is drawn as a batch has that is made of other draws: the levels of noise, `torch.rand(len(x))`,
    of the samples that a generator cuts out of an order."""
    told = [each for size in _names(draw.size) for each in told_sizes(size, draw.source, run)]
    values = [run.values.get(each, NOTHING) for each in told]
    made = [{each for each in value.origins if isinstance(each, Draw)} for value in values if not value.spread.is_local]
    return any(each and each.isdisjoint(taken) for each in made)


def _are_of_some_alone(draws: list[Draw], run: Interpreter) -> bool:
    """Whether a step asks one of several functions for its batch, `toys[name]().sample(size)`, and another one makes it
    in a way of its own: a rank has its share of what the first draws, and would train on all that the other gives."""
    drawing, pending = set[ast.AST](), [draw.source.function(draw.node) for draw in draws]
    while pending:  # the functions that draw, and those that call them
        if (maker := pending.pop()) is not None and maker not in drawing:
            drawing.add(maker)
            pending += [source.function(call) for call, source in run.callers.get(maker, {}).items()]
    calls = {call: None for maker in drawing for call in run.callers.get(maker, {})}
    return any(
        not drawing.issuperset(each.node for each in _entered(call, run) if _gives_something(each.node))
        for call in calls
        if any(run.loops_of.get(each, set()) & run.step_loops for each in walk(call.func))  # type: ignore[call-overload]
    )


def _entered(call: ast.Call, run: Interpreter) -> list[Function]:
    """The functions of the project that a call may enter."""
    return run.values.get(call.func, NOTHING).functions


def _gives_something(function: ast.AST) -> bool:
    """Whether a function is not one that others take the place of, `raise NotImplementedError`. What a lambda gives is
    looked at where outputs are."""
    return any(
        isinstance(each, (ast.Return, ast.Yield, ast.YieldFrom)) and each.value is not None for each in walk(function)
    )


def _learns_beside(draws: list[Draw], loops: Collection[ast.AST], run: Interpreter) -> bool:
    """Whether steps also learn from what is not drawn: the points at the borders of a differential equation, besides
    those within."""
    return any(
        isinstance(event.node, ast.Call)
        and bool(event.node.args)
        and event.detail.origins.isdisjoint(draws)
        and any(loop.node in loops for loop in event.loops)
        for event in run.of("forward")
        if event.grad
    )


def _precedes_batches(event: Event) -> bool:
    """Whether a generator does something ahead of the loop that yields its batches, for all of them: it draws an order
    of the samples, or augments them."""
    inner = [*((call.node, call.source) for call in event.calls[1:]), (event.node, event.source)]
    for call, (node, source) in zip(event.calls, inner, strict=False):
        loops = _yielding(call.function.node)
        if loops and None not in loops and node is not None and loops.isdisjoint(source.ancestors(node)):
            return True
    return False


def _makes_batches(event: Event) -> bool:
    """Whether a generator draws in the loop that yields its batches, wherever it is called: `train(batches(8))`."""
    inner = event.calls[-1].function.node if event.calls else None
    return inner is not None and bool(event.loops) and event.loops[-1].node in _yielding(inner)


@functools.lru_cache(maxsize=256)
def _yielding(function: ast.AST) -> frozenset[ast.AST | None]:
    """The loops in which a function yields, each the innermost one; None for none."""
    found: set[ast.AST | None] = set()
    pending: list[tuple[ast.AST, ast.AST | None]] = [(each, None) for each in ast.iter_child_nodes(function)]
    while pending:
        node, loop = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            found.add(loop)
        inner = node if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else loop
        pending += [(each, inner) for each in ast.iter_child_nodes(node)]
    return frozenset(found)


Named = tuple[str, ast.AST | None]
"""A name, and the function that it is a variable of; none for an attribute."""


def _cut_into_batches(run: Interpreter) -> set[Named]:
    """What a loop takes a slice of in each round: `indices[i * batch_size : (i + 1) * batch_size]`."""
    cuts = ((event.node, event.source) for event in run.of("draw"))
    return {_named(node.value, source) for node, source in cuts if isinstance(node, ast.Subscript)}


def _names_of(draw: Draw) -> set[Named]:
    """What indices are called as they are drawn, `order = torch.from_numpy(np.random.choice(n, n, False))`."""
    return {_named(target, draw.source) for target in _bound(draw)}


def _named(node: ast.expr, source: Source) -> Named:
    return ast.unparse(node), source.home(node) if isinstance(node, ast.Name) else None


def _bound(draw: Draw) -> list[ast.expr]:
    """What is assigned the indices that are drawn."""
    for parent in draw.source.ancestors(draw.node):
        if isinstance(parent, ast.Assign):
            return parent.targets
        if not isinstance(parent, ast.Call):
            break
    return []


def _steps_along(node: ast.AST, loop: ast.AST, run: Interpreter) -> bool:
    """Whether a loop cuts what a step has into pieces: `[rays[i : i + chunk] for i in range(0, len(rays), chunk)]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice) or node.slice.lower is None:
        return False
    over = set(walk(loop.iter)) if isinstance(loop, (ast.For, ast.comprehension)) else set()
    starts = run.values.get(node.slice.lower, NOTHING).things
    return any(isinstance(thing, Index) and thing.loop in over for thing in starts)


def _counts_what_all_have(draw: Draw, run: Interpreter) -> bool:
    """Whether as much is drawn as there is of other data that the script puts together for a step, which no draw made:
    `np.random.choice(words, (len(pairs), 5))`, and `noise(x.shape[0])` of a function that draws so many. A rank's share
    of the one would meet all of the other."""
    size = draw.size
    several = isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult)  # `len(pairs) * 5`
    sizes = [size.left, size.right] if isinstance(size, ast.BinOp) and several else [size] if size is not None else []
    counted = next((found for each in sizes if (found := counted_of(each)) is not None), None)
    if counted is not None and counted in run.values:
        value = run.values[counted]
        made = _is_drawn(value) or value.spread.is_local
        if not made and any(isinstance(thing, Items) for thing in value.things):
            return True
    told = [each for size in _names(draw.size) for each in told_sizes(size, draw.source, run)]
    values = [run.values.get(each, NOTHING) for each in told]
    return bool(told) and not any(value.spread.is_local or _is_drawn(value) for value in values)


def _is_drawn(value: Value) -> bool:
    """Whether a step draws the samples that a value holds. An order of all samples is drawn for all batches."""
    return any(isinstance(each, Draw) and not each.permutes for each in value.origins)


def _names(size: ast.expr | None) -> list[ast.Name]:
    return list(all_of(size, ast.Name)) if size is not None else []


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
        or _sizes_other_data(use, source, run)
        or shapes_tensors(use, source, run, in_step=bool(run.loops_of.get(use, set()) & steps))
        for use, source in run.sources.items()
        if isinstance(use, (ast.Name, ast.Attribute))
        and isinstance(use.ctx, ast.Load)
        and last_name(use) == last_name(draw.size)
    )


def _is_handed_on(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a value is only printed, or given to a function of the project that cuts nothing by it."""
    parent = source.parents[use]
    name = parent.arg if isinstance(parent, ast.keyword) else None
    if isinstance(parent, ast.keyword):
        parent = source.parents[parent]
    if isinstance(parent, ast.Call):
        things = run.values.get(parent.func, NOTHING).things
        printed = isinstance(parent.func, ast.Name) and parent.func.id == "print"
        place = next((at for at, each in enumerate(parent.args) if each is use), None)
        return (
            printed
            or bool(things)
            and all(isinstance(thing, Function) and not _cuts_by(thing, name, place) for thing in things)
        )
    return isinstance(parent, (ast.FormattedValue, ast.Assign))


def _cuts_by(function: Function, name: str | None, place: int | None) -> bool:
    """Whether a function takes as many rows as it is told, from anywhere: `x[start : start + size]`."""
    spec = function.node.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    if name is None and place is not None:
        bound = function.owner is not None and names[:1] == ["self"]
        name = next(iter(names[place + bound :]), None)
    slices = all_of(function.node, ast.Slice)
    bounds = (each for part in slices for each in (part.lower, part.upper) if each is not None)
    return any(isinstance(each, ast.Name) and each.id == name for bound in bounds for each in walk(bound))


def _sizes_other_data(use: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether it is the batch size of a loader whose samples no gradient comes from: of the evaluation."""
    call = source.parents[use]
    call = source.parents[call] if isinstance(call, ast.keyword) else call
    loaders = [*run.values.get(call, NOTHING).objects("loader")] if isinstance(call, ast.Call) else []
    trained = origins_of(run)
    return bool(loaders) and not any(each in trained for each in loaders)


def drawn_alike(
    run: Interpreter,
    varied: frozenset[str],
    shared: frozenset[ast.AST],
    loaders: Collection[Loader],
    seeded_alike: Iterable[Loader],
) -> Iterator[Concern]:
    """What is drawn for one of a rank's samples after the other, where ranks are seeded alike, as the workers of some
    loaders are."""
    if is_distributed(run):
        return
    read = [(each.source, each.node) for each in randomness.augmented_alike(loaders, run, varied)]
    read += [(d.source, d.node) for each in seeded_alike for d in run.runs.draws.by_workers(each.object.node)]
    found = ((each.source, each.node) for each in randomness.drawn_alike(run, varied, shared))
    own = ((each.source, each.node) for each in randomness.noise_of_own(run) if each.node not in shared)
    read += [(each.source, each.node) for each in run.runs.generators.one_by_one(run.placements)]
    for source, node in [*found, *read, *own][:1]:
        message = (
            "draws for this rank's samples, and all ranks draw alike: what is drawn repeats from rank to rank within a "
            "batch; draw for the whole batch before it is shared out, or from a generator seeded by rank"
        )
        yield _draw_concern(source, node, message)


def generators_alike(kept: Iterable[Site]) -> Iterator[Concern]:
    """Generators for samples that begin alike on all ranks, and from which other things may be drawn."""
    for site in kept:
        message = (
            "draws for this rank's samples, and all ranks draw alike: what is drawn repeats from rank to rank within a "
            "batch. Other things may be drawn from it, which ranks must have alike: give the samples a generator of "
            "their own, seeded by rank"
        )
        yield _draw_concern(site.source, site.node, message)


def masks_alike(draws: Iterable[Draw], loaders: Iterable[Loader], alike: bool) -> Iterator[Concern]:
    """Where ranks take their shares of batches and go on drawing ``alike``: what one drops out, all of them do."""
    for draw in draws if alike else ():
        message = (
            "masks of dropout are the same on all ranks, which draw them from the generator of the batches; for "
            "others, draw the batches from a torch.Generator of their own, and seed the ranks apart"
        )
        yield Concern("AD702", draw.source, draw.node, message, Severity.WARNING)
        return
    for loader in loaders if alike else ():
        message = (
            "masks of dropout and noise are the same on all ranks, which draw from one generator what they share; for "
            "others, draw that from a torch.Generator of its own, and seed the ranks apart"
        )
        yield Concern("AD702", loader.object.source, loader.object.node, message, Severity.WARNING)
        return


def picked_apart(
    run: Interpreter, apart: Iterable[Site], varied: frozenset[str], common: Iterable[Site]
) -> Iterator[Concern]:
    """Where ranks that have gone apart each pick for themselves from what all of them have: a memory of samples."""
    loops = {each.node for each in apart} if not is_distributed(run) else set()
    for event in list(randomness.picked_apart(run, loops, varied, {each.node for each in common}))[:1]:
        message = (
            "picks from what all ranks have alike, by numbers that each rank draws for itself once dropout and noise "
            "differ by rank: the ranks pick as many times more than one process does; draw the numbers from a "
            "generator that is seeded alike, and take each rank's share of them"
        )
        yield _draw_concern(event.source, event.node, message)


def drawn_once(sites: Iterable[Site]) -> Iterator[Concern]:
    """What steps draw for a whole batch, where ranks have gone apart and rank 0 cannot draw for all of them."""
    for site in sites:
        message = (
            "is drawn once for the whole batch, and each rank draws its own once dropout and noise differ by rank: the "
            "samples of one batch get as many draws as there are ranks; draw it from a torch.Generator that is seeded "
            "alike on all ranks"
        )
        yield _draw_concern(site.source, site.node, message)


def _draw_concern(source: Source, node: ast.AST, message: str) -> Concern:
    """What is said of a call that draws, by its code."""
    code = shortened(source.code(node)) if isinstance(node, ast.expr) else "this"
    return Concern("AD702", source, node, f"{code} {message}", Severity.WARNING)


def left_seeded(run: Interpreter) -> Iterator[Concern]:
    """Where ranks draw apart what they must have in common, each from where its last sample has left the generator."""
    if is_distributed(run):
        return
    for event, seed in list(randomness.left_seeded(run))[:1]:
        code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
        assert isinstance(seed.node, ast.Call)
        again = shortened(seed.source.code(seed.node))
        message = (
            f"{code} is drawn after the data set has said `{again}` (line {seed.node.lineno}) for the samples that a "
            "rank reads, which are not those of others: each rank would draw something else; have the data set draw "
            "from a generator of its own"
        )
        yield Concern("AD902", event.source, event.node, message, Severity.REFUSAL)


def draw_sites(run: Interpreter, draws: frozenset[object]) -> Iterator[Draw]:
    """The draws of which a rank takes its share, each once."""
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
    return run.goes_by_rank(parent.slice.lower)
