"""The loaders whose batches are shared out, and the epochs in which they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from autodist import randomness, regions, resizing
from autodist.analyze.batch_sizes import training_switch
from autodist.analyze.numbering import counts_on, numbered_around, repeats
from autodist.interpreter import Event, Interpreter, Loop
from autodist.placement import Replicate, Shard
from autodist.placement.arguments import gives_zeros
from autodist.program import Operation, held
from autodist.rule import Severity
from autodist.script import Concern, Epoch, Loader, Site
from autodist.solve.steps import steps_of
from autodist.solve.written import code_of
from autodist.source import Source, all_of, argument, last_name, shortened, walk
from autodist.values import NOTHING, Index, Object, Path_, Scope, Value, drawn_from


def sharded_loaders(
    first: Interpreter, run: Interpreter, trained: set[tuple[int, Path_]]
) -> tuple[list[Loader], list[Concern]]:
    """The loaders whose batches are shared out, and what is to be said of them."""
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
    together = list(_read_together(first))
    for node, found in made.items():
        ours = [(t, n) for t, n in found if t.key in trained]
        if not ours:
            continue
        loader = ours[0][0]
        several = len(ours) < len(found)
        mixed = several or any(_serves_several(each, passes.get(each, ()), run) for each, _ in ours)
        switch = training_switch(found, trained) if several else None
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
                beside=frozenset(each.node for group in together for each in _others(group, {t.key for t, _ in ours})),
                remade_samplers=frozenset(node for t, _ in ours for node in _remade_samplers(t, run)),
                presets=tuple(run.presets.get(loader.node, ())),
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
    return [each for each in loaders if each.sharded or not _replaces_sharded(each, loaders)], concerns


def _replaces_sharded(loader: Loader, loaders: list[Loader]) -> bool:
    """Whether one is made where the script goes without a process group, in the other branch of a condition under which
    it makes one that is shared out: `if ddp: ... else: loader = DataLoader(data, shuffle=True)`."""
    inner: ast.AST = loader.node
    for around in loader.source.ancestors(loader.node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(around, ast.If):
            other = around.body if inner in around.orelse else around.orelse
            made = {each.node for each in loaders if each.sharded}
            if any(node in made for statement in other for node in walk(statement)):
                return True
        inner = around
    return False


def _serves_several(loader: Object, passes: Iterable[Event], run: Interpreter) -> bool:
    """Whether what stands for a loader is one of each of several data sets, `map(make_loader, splits)`, of which some
    are read where nothing is trained."""
    data = argument(loader.node, "dataset", 0)
    name = data.id if isinstance(data, ast.Name) else None
    around = [each for each in loader.source.ancestors(loader.node) if name in _bound_by(each)]
    if not around:
        return False
    steps = {loop.node for event in run.of("backward") for loop in event.loops}
    outside = [each for each in passes if not any(loop.node is around[0] for loop in each.loops)]
    return any(each.node in steps for each in outside) and any(each.node not in steps for each in outside)


def _bound_by(node: ast.AST) -> set[str]:
    """The names that a loop, a comprehension or a lambda binds anew for each of several things."""
    if isinstance(node, ast.Lambda):
        return {each.arg for each in node.args.args}
    targets = [node.target] if isinstance(node, (ast.For, ast.AsyncFor)) else []
    targets += [each.target for each in getattr(node, "generators", ())]
    return {each.id for target in targets for each in all_of(target, ast.Name)}


def _read_together(run: Interpreter) -> Iterator[set[Object]]:
    """The loaders that the steps of one loop read, as it is run once."""
    groups: dict[object, set[Object]] = {}
    for event in run.of("backward"):
        around = event.loops[-1].node if event.loops else event.node
        held = {each for each in event.value.origins if isinstance(each, Object) and "loader" in each.roles}
        groups.setdefault((around, *(call.node for call in event.calls)), set()).update(held)
    yield from groups.values()


def _others(group: set[Object], keys: set[tuple[int, Path_]]) -> Iterator[Object]:
    """What a group holds beside one of our loaders, and not instead of it."""
    ours = [each for each in group if each.key in keys]
    yield from (each for each in group if any(each is not loader and not _is_instead(each, loader) for loader in ours))


def _remade_samplers(loader: Object, run: Interpreter) -> Iterator[ast.Call]:
    """The samplers of a loader that draw from the global generator, and that a loop around the training steps makes
    again and again: what they draw is to go on, whatever they are seeded with."""
    training = (loop for event in run.of("backward") for loop in event.loops)
    again = {loop.node for loop in training if not _makes_model(loop, run)}
    for sampler in randomness.unseeded_samplers(loader):
        if not again.isdisjoint(_loops_around(sampler.node, sampler.source, run)):
            yield sampler.node


def _loops_around(node: ast.AST, source: Source, run: Interpreter, depth: int = 6) -> Iterator[ast.AST]:
    """The loops in which something is run, those around the calls of its function among them."""
    for each in source.ancestors(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for call, where in run.callers.get(each, {}).items() if depth else ():
                yield from _loops_around(call, where, run, depth - 1)
            return
        if isinstance(each, (ast.For, ast.While)):
            yield each


def _is_instead(one: Object, other: Object) -> bool:
    """Whether a condition makes one of two loaders: `if fast: loader = DataLoader(...)`, `else: loader = ...`."""
    return one.source is other.source and regions.exclusive(one.source, one.node, other.node)


def evaluation_loaders(run: Interpreter, loaders: list[Loader]) -> Iterator[Site]:
    """The calls that make loaders of which none trains."""
    training = {loader.node for loader in loaders}
    made = {
        event.node: event.source
        for event in run.of("loader")
        if any(thing.name == "torch.utils.data.DataLoader" for thing in event.value.objects("loader"))
    }
    yield from (Site(source, node) for node, source in made.items() if node not in training)


def evaluation_samplers(run: Interpreter, loaders: list[Loader]) -> Iterator[Site]:
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
    for event in sorted([*run.of("iterate"), *run.of("iter"), *run.of("listed")], key=lambda e: e.order):
        if (not isinstance(event.node, ast.comprehension) or event.node in run.step_loops) and not _goes_on(event):
            for loader in dict.fromkeys(drawn_from(event.value)):
                found.setdefault(loader, []).append(event)
    return found


def _goes_on(event: Event) -> bool:
    """Whether a loop goes on with a pass that has begun above it: `batches = iter(loader)`, `for x in batches:`."""
    read = event.node.iter if event.kind == "iterate" and isinstance(event.node, ast.For) else None
    while isinstance(read, ast.Call) and last_name(read.func) in ("enumerate", "tqdm") and read.args:
        read = read.args[0]
    if not isinstance(read, ast.Name):
        return False
    bound = [event.source.parents.get(each) for each in event.source.stores(read)]
    made = [each.value for each in bound if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)]
    block = event.source.block(event.source.statement(event.node))
    return len(bound) == 1 == len(made) and last_name(made[0].func) == "iter" and bound[0] in block


def _epochs(loaders: list[Object], passes: Mapping[Object, list[Event]], run: Interpreter) -> list[Epoch]:
    """The statements that start a pass over one of the loaders. Either each is told the number of its epoch, or, where
    one that trains has none, the sampler counts them all: by both it would come to a number that it had before."""
    found = [*_begun(loaders, passes, run, numbered=True)]
    if any(counted for _, counted in found):
        found = [*_begun(loaders, passes, run, numbered=False)]
    return [epoch for epoch, _ in found]


def _begun(
    loaders: list[Object], passes: Mapping[Object, list[Event]], run: Interpreter, *, numbered: bool
) -> Iterator[tuple[Epoch, bool]]:
    """The same, ``numbered`` by loops or not, and whether the sampler counts the steps of training from there."""
    seen: set[ast.stmt] = set()
    events = {event.order: event for loader in loaders for event in passes.get(loader, [])}
    steps = run.step_loops
    restarts = any(event.kind == "iter" and event.loops and event.loops[-1].node in steps for event in events.values())
    phases = {_outermost(event): event.source for event in events.values() if event.kind == "iterate" and event.grad}
    phases = {} if counts_on(phases) else phases
    made: dict[Object, set[ast.AST]] = {each: set() for each in loaders}
    for event in run.of("loader"):
        for loader in event.value.objects("loader"):
            if loader in made:
                made[loader] |= {loop.node for loop in event.loops}
    passed: set[Object] = set()
    for _, event in sorted(events.items()):
        statement = event.node if isinstance(event.node, ast.stmt) else event.source.statement(event.node)
        outer = [loop for loop in event.loops if isinstance(loop.node, (ast.For, ast.While, ast.Call))]
        passed_before = not passed.isdisjoint(drawn_from(event.value))
        passed |= set(drawn_from(event.value)) if event.grad else set()
        if not outer and event.grad and statement not in seen:  # one pass, ahead of those of training or after them
            if passed_before:
                seen.add(statement)
                yield Epoch(event.source, statement, _loader_name(event, loaders, run), None), False
        if not outer or statement in seen or any(isinstance(s, ast.For) and s is statement for s in seen):
            continue
        seen.add(statement)
        name = _loader_name(event, loaders, run)
        kept = [loop for loop in outer if not all(loop.node in made[each] for each in loaders)]
        number, counted = _number(outer, event)
        if counted is not None and counted not in kept and any(loop in kept for loop in outer[outer.index(counted) :]):
            number, counted = None, None  # it numbers the loaders that are made anew, and not the passes over one
        if counted is not None and _is_elsewhere_too(event, number, counted, passes):
            number, counted = None, None
        again = restarts or _passes_again(event, events.values(), loaders)
        inside = any(call.function.node in run.closures for call in event.calls)
        if not numbered or again or len(phases) > 1 or _is_repeated(kept, event, name) or inside:
            number = None
        elsewhere = [loop for loop in outer if any(loop.node in made[each] for each in loaders)]
        if number is None and numbered and len(phases) < 2 and not again and not elsewhere:
            told = numbered_around(event, events.values(), name)
            if told is not None and not _beside(event, name, loaders, run):
                yield told, False
                continue
        around = outer[: outer.index(counted)] if number is not None and counted is not None else outer
        remade = [loop for loop in around if any(loop.node in made[loader] for loader in loaders)]
        begun = not all(_makes_model(loop, run) for loop in remade)
        for each in (name, *_beside(event, name, loaders, run)):
            yield Epoch(event.source, statement, each, number, begun), number is None and event.grad and not begun


def _is_elsewhere_too(event: Event, number: str | None, counted: Loop, passes: Mapping[Object, list[Event]]) -> bool:
    """Whether a function that reads the number of a loop around its call, which it is not given, is called from
    outside of that loop as well, to pass over another loader."""
    given = event.function.node.args if event.function is not None else None
    if given is not None and any(each.arg == number for each in all_of(given, ast.arg)):
        return False
    others = (each for found in passes.values() for each in found if each.node is event.node)
    return any(counted.node not in {loop.node for loop in each.loops} for each in others)


def _makes_model(loop: Loop, run: Interpreter) -> bool:
    """Whether a loop makes a model that has seen no samples, as one for each fold of the data: its epochs may have the
    orders of another one's."""
    calls = all_of(loop.node, ast.Call)
    if any(last_name(each.func) in ("deepcopy", "load_state_dict") for each in calls):
        return False
    made = {t.node for each in calls for t in run.values.get(each, NOTHING).objects("module")}
    return not made.isdisjoint(calls)


def _passes_again(event: Event, events: Iterable[Event], loaders: list[Object]) -> bool:
    """Whether a round of the loops around passes over a loader twice: a function that is called once for each of two
    models that train, or another loop below, which does not stand in another branch instead."""
    ours = set(drawn_from(event.value)) & set(loaders)
    around = [loop.node for loop in event.loops]
    for other in events if event.grad else ():
        if not other.grad or [loop.node for loop in other.loops] != around or ours.isdisjoint(drawn_from(other.value)):
            continue
        if _way(other) != _way(event) and not _excludes(_way(event), _way(other)):
            return True
    return False


def _way(event: Event) -> list[tuple[Source, ast.AST]]:
    """The calls that lead to what happens, and where it does."""
    calls = [(call.source, call.node) for call in event.calls if call.node is not None]
    return [*calls, (event.source, event.node)]


def _excludes(one: list[tuple[Source, ast.AST]], other: list[tuple[Source, ast.AST]]) -> bool:
    """Whether two ways part in the branches of a condition."""
    pairs = (
        (source, a, b) for (source, a), (where, b) in zip(one, other, strict=False) if a is not b and source is where
    )
    source, first, second = next(pairs, (None, None, None))
    if source is None or first is None or second is None:
        return False
    ways = [{each, *source.ancestors(each)} for each in (first, second)]
    branches = [each for each in ways[0] & ways[1] if isinstance(each, ast.If)]
    return any(
        not way.isdisjoint(each.body) and not rest.isdisjoint(each.orelse)
        for each in branches
        for way, rest in (ways, ways[::-1])
    )


def _is_repeated(loops: list[Loop], event: Event, name: str | None) -> bool:
    """Whether no loop numbers the passes over a loader: a `while` has no number, a loop around starts it anew, and one
    inside may pass over it in each of its rounds."""
    counting = [place for place, loop in enumerate(loops) if any(_numbers(loop).values())]
    if any(isinstance(loop.node, (ast.While, ast.Call)) for loop in loops) or counting and counting[-1] > 0:
        return True
    return bool(counting) and any(repeats(loop, event, name) for loop in loops[1:])


def _numbers(loop: Loop) -> dict[str, set[Index]]:
    """What a loop's target names that counts its rounds."""
    bound = walk(loop.through.target) if loop.through is not None else ()
    names = [n.id for n in bound if isinstance(n, ast.Name)]
    return {name: {t for t in loop.scope.names.get(name, NOTHING).things if isinstance(t, Index)} for name in names}


def _outermost(event: Event) -> ast.AST | None:
    """The loop around all others where a pass starts; each may count from zero."""
    loops = [loop.node for loop in event.loops if isinstance(loop.node, (ast.For, ast.While))]
    return loops[0] if loops else None


def _beside(event: Event, name: str | None, loaders: list[Object], run: Interpreter) -> list[str]:
    """Other loaders that the same call makes, and that are passed over in the same loop, `zip(source, target)`, or by
    the same statement."""
    start = event.node.iter if isinstance(event.node, (ast.For, ast.AsyncFor)) else event.node
    if event.kind == "listed" and isinstance(event.source.statement(start), ast.Assign):
        start = event.source.statement(start)  # `a, b = list(source), list(target)`
    found: dict[str, frozenset[Object]] = {}
    for node in walk(start) if name is not None else ():
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and _is_path(node):
            value = run.values.get(node, NOTHING)
            if _is_loader(value, loaders):
                found.setdefault(event.source.code(node), frozenset(value.objects("loader")))
    told = found.pop(name, frozenset()) if name is not None else frozenset()
    return [each for each, held in found.items() if not held & told]


def _loader_name(event: Event, loaders: list[Object], run: Interpreter) -> str | None:
    """An expression that names the loader where a pass over it starts."""
    start = event.node.iter if isinstance(event.node, (ast.For, ast.AsyncFor)) else event.node
    for node in walk(start):
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


def _shared_in_part(run: Interpreter) -> Iterator[Operation]:
    """What computes losses of something that is now drawn, of which a rank takes its share, and now made as a whole."""
    program, of = run.runs.program, run.placements.of
    learnt = steps_of(program).differentiated
    drawn = program.depending(op for op in program.operations if id(op.node) in (run.plan.draws or ()))
    for op in sorted(steps_of(program).reaching, key=lambda each: each.number) if drawn else ():
        for value in op.operands:
            shared = any(isinstance(of.get(each), Shard) for each in value.operations & drawn)
            made = {*held(value)} - drawn - learnt if shared else ()
            whole = [each for each in made if of.get(each, Replicate()) == Replicate() and not gives_zeros(each)]
            if any(each.is_tensor if each in value.operations else each.name.startswith(RANDOM) for each in whole):
                yield op


RANDOM = ("random.", "numpy.random.")
"""Beginnings of the names of what draws numbers one by one, of which scripts make lists."""


def _mixed_by_all(run: Interpreter) -> Iterator[tuple[Operation, Operation]]:
    """Where a rank's samples are put into an order that is drawn for those of all ranks, and what draws it."""
    of = run.placements.of
    for op in run.runs.program.operations:
        if (
            op.name == "getitem"
            and len(op.inputs) > 1
            and isinstance(lying := run.placements.value(op.inputs[0]), Shard)
            and not lying.axis
        ):
            orders = [each for each in op.inputs[1].operations if each.name.endswith(PERMUTING)]
            if orders and all(of.get(each, Replicate()) == Replicate() for each in orders):
                yield op, orders[0]


PERMUTING = (".randperm", ".permutation")
"""Ends of the names of what draws an order."""


def sampler_concerns(run: Interpreter) -> Iterator[Concern]:
    """Samplers of the script's own that draw from a new seed, so that ranks would not agree on the samples."""
    for picked, drawn in _mixed_by_all(run):
        message = (
            f"{code_of(picked)} mixes the samples of a batch by {code_of(drawn)}, which counts those of all ranks: a "
            "rank has its share only; draw as many numbers as the tensor has rows"
        )
        yield Concern("AD902", picked.source, picked.node, message, Severity.REFUSAL)
        return
    for op in _shared_in_part(run):
        message = (
            f"{code_of(op)} is given a rank's share of a batch, or all of one that is made elsewhere, as a setting "
            "says: make the other one where it is made, too"
        )
        yield Concern("AD902", op.source, op.node, message, Severity.REFUSAL)
        return
    taken = run.plan.draws or frozenset()
    for event in run.of("local_draw"):
        if event.detail.const not in taken or not isinstance(size := event.node, ast.expr):
            continue
        if run.is_alike(size) or run.counts_samples(size):
            continue
        code = event.source.code(size)
        message = (
            f"draws by {shortened(code)}, which each rank changes by its own samples: ranks would draw different "
            f"batches; gather what changes {shortened(code)} over the ranks, or draw without it"
        )
        yield Concern("AD902", event.source, size, message, Severity.REFUSAL)
        return
    for order, other in randomness.parted_orders(run):
        code = shortened(order.source.code(order.node)) if isinstance(order.node, ast.expr) else "the order"
        message = (
            f"{code} draws from the generator of which {other} draws as much as a rank's own rows ask for: ranks would "
            "put the samples in different orders; give the order a generator of its own"
        )
        yield Concern("AD902", order.source, order.node, message, Severity.REFUSAL)
        return
    for loader in dict.fromkeys(t for event in run.of("loader") for t in event.value.objects("loader")):
        found = run.layout(loader).by_number if run.shares_out(loader) else None
        if found is not None and isinstance(found.node, ast.expr):
            message = (
                f"{shortened(found.source.code(found.node))} lays the samples of a whole batch out by number, as those "
                "of few-shot episodes: a rank's share has other ones; give each rank whole episodes by hand"
            )
            yield Concern("AD203", found.source, found.node, message, Severity.REFUSAL)
            return
    for event in run.of("unseeded"):
        if randomness.is_of_sampler(event) and not randomness.reseeds(event):
            message = (
                "a sampler that starts from a new seed draws other samples on each rank, where all must agree: "
                "give it a seed"
            )
            yield Concern("AD203", event.source, event.node, message, Severity.REFUSAL)
            return
