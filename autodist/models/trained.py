"""Which modules train, and where each becomes a distributed one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from autodist.interpreter import Event, Interpreter
from autodist.models import unused
from autodist.regions import exclusive, within
from autodist.script import Model, Site, Wrapping
from autodist.source import Source, last_name, shortened
from autodist.values import (
    NOTHING,
    Class,
    External,
    Function,
    Inside,
    Items,
    Object,
    Parameters,
    Path_,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
)

Key = tuple[int, Path_]
Keys = frozenset[Key]
"""What tells objects from others, in every run of the interpreter."""


def optimized_modules(run: Interpreter) -> list[Object]:
    """The modules whose parameters an optimizer is given."""
    found: dict[Object, None] = {}
    for event in run.of("optimizer"):
        for thing in event.value.objects("optimizer"):
            found.update(dict.fromkeys(optimized_by(thing)))
    return list(found)


def whose_parameters(value: Value, depth: int = 6) -> Iterator[Thing]:
    """The modules whose parameters something is, or holds."""
    if depth == 0:
        return
    for thing in value.things:
        if isinstance(thing, Parameters):
            yield thing.module.module if isinstance(thing.module, Wrapped) else thing.module
        elif isinstance(thing, Items):
            for part in (*thing.parts, thing.element):
                yield from whose_parameters(part, depth - 1)
        elif isinstance(thing, Table):
            for part in (*thing.entries.values(), thing.element):
                yield from whose_parameters(part, depth - 1)
        elif isinstance(thing, Stream):
            yield from whose_parameters(thing.element, depth - 1)


def optimized_by(optimizer: Object, depth: int = 4) -> list[Object]:
    """The modules whose parameters one optimizer is given, or that around which it is: `Lookahead(optimizer)`."""
    values = (*optimizer.args, *optimizer.keywords.values())
    given = [thing for value in values for thing in unwrapped(value) if isinstance(thing, Object)]
    whole = [thing for thing in given if "module" in thing.roles]  # `create_optimizer(model)`
    inner = [t for t in given if "optimizer" in t.roles and t is not optimizer] if depth else []
    around = [module for thing in inner for module in optimized_by(thing, depth - 1)]
    own = (each for value in values for each in whose_parameters(value) if isinstance(each, Object))
    return [*whole, *own, *around]


def owned_values(run: Interpreter) -> set[int]:
    """The identities of all values that are attributes of the modules that train."""
    return {id(v) for module in optimized_modules(run) for part in parts(module) for v in part.attributes.values()}


def loose_parameters(optimizer: Object, inside: set[int]) -> bool:
    """Whether an optimizer is also given tensors that belong to no module, which owns the values ``inside``."""
    pending = [*optimizer.args, *optimizer.keywords.values()]
    for _ in range(200):
        if not pending:
            break
        value = pending.pop()
        for thing in value.things:
            if isinstance(thing, Object) and "parameter" in thing.roles and id(value) not in inside:
                return True
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                pending += [*thing.entries.values(), thing.element]
    return False


_PARTS: WeakKeyDictionary[Object, list[Object]] = WeakKeyDictionary()
"""What modules hold once their run is over, which is asked of each of them again and again."""


def parts(module: Object) -> list[Object]:
    """The module and all that it holds."""
    found = _PARTS.get(module)
    if found is None:
        found = _PARTS[module] = _parts(module)
    return found


def _parts(module: Object) -> list[Object]:
    found: dict[int, Object] = {}
    pending: list[Value] = [Value(frozenset([module]))]
    containers: set[int] = set()
    read: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value.things) in read:
            continue
        read.add(id(value.things))
        for thing in value.things:
            if isinstance(thing, Wrapped):
                thing = thing.module
            if isinstance(thing, Object) and ("module" in thing.roles or "batch_norm" in thing.roles):
                if id(thing) not in found:
                    found[id(thing)] = thing
                    pending += [*thing.args, *thing.keywords.values(), *thing.attributes.values()]
            elif isinstance(thing, (Items, Table, Stream)) and id(thing) not in containers:
                containers.add(id(thing))
                if isinstance(thing, Items):
                    pending += [*thing.parts, thing.element]
                elif isinstance(thing, Table):
                    pending += [*thing.entries.values(), thing.element]
                else:
                    pending.append(thing.element)
    return list(found.values())


@dataclass(frozen=True)
class History:
    """What happens to each module, in order."""

    forwards: Mapping[Thing, list[Event]]
    """Those with gradients."""
    backwards: Mapping[Thing, list[Event]]
    places: Mapping[Thing, list[Event]]
    """Where it is bound or moved."""
    lists: Mapping[Thing, list[Event]]
    """Where a list that holds it is bound."""
    freezes: Mapping[Thing, list[Event]]
    grows: Mapping[Thing, list[Event]]
    """Where it is given further layers."""
    wraps: list[Event]
    averaged: bool
    """Whether the script itself reduces gradients over the ranks."""


def _history(run: Interpreter) -> History:
    forwards: dict[Thing, list[Event]] = {}
    backwards: dict[Thing, list[Event]] = {}
    places: dict[Thing, list[Event]] = {}
    lists: dict[Thing, list[Event]] = {}
    freezes: dict[Thing, list[Event]] = {}
    grows: dict[Thing, list[Event]] = {}
    for event in run.events:
        if event.kind == "forward" and event.grad:
            _note(forwards, unwrapped(event.value), event)
        elif event.kind == "backward":
            _note(backwards, event.value.models, event)
        elif event.kind in ("bind", "bind_part", "move", "alias", "alias_part") and not event.inside_forward:
            _note(places, unwrapped(event.value), event)
        elif event.kind == "bind_each" and not event.inside_forward:
            _note(lists, unwrapped(event.value), event)
        elif event.kind == "freeze":
            _note(freezes, unwrapped(event.value), event)
        elif event.kind == "grow" and not event.inside_forward:
            _note(grows, unwrapped(event.value), event)
    return History(forwards, backwards, places, lists, freezes, grows, run.of("wrap"), _averages_by_hand(run))


def _note(found: dict[Thing, list[Event]], things: Iterable[Thing], event: Event) -> None:
    for thing in things:
        found.setdefault(thing, []).append(event)


def trained_models(run: Interpreter) -> list[Model]:
    """The outermost modules that gradients flow through and an optimizer steps, in the order of their first use."""
    history = _history(run)
    optimized = optimized_modules(run)
    used: dict[Object, None] = {}
    for event in run.of("backward"):
        for thing in sorted(event.value.models, key=_place):
            if isinstance(thing, Object):
                used.setdefault(thing)
    members = {module: parts(module) for module in (*used, *optimized)}
    owners: dict[Object, list[Object]] = {}
    for module in optimized:
        for part in members[module]:
            owners.setdefault(part, []).append(module)
    stepped = frozenset(optimized)
    trained = [m for m in used if not stepped or not stepped.isdisjoint(members[m])]
    roots: dict[Object, None] = {}
    passed_by: dict[Object, str] = {}
    for module in trained:
        roots.setdefault(module)
    for module in used:
        owner = next((o for o in owners.get(module, []) if o is not module and o not in history.forwards), None)
        if owner is not None:
            roots.pop(module, None)
            roots.setdefault(owner)
            passed_by[owner] = "its methods are called instead of itself, so that gradients flow past forward()"
    for module in roots:
        if any(_calls_itself(event, module) for event in history.forwards.get(module, [])):
            passed_by.setdefault(module, "a method of it calls it, so that gradients flow past its wrapper")
    held: dict[Object, list[Object]] = {}
    for root in roots:
        for part in members[root]:
            held.setdefault(part, []).append(root)
    for module in list(roots):
        owner = next((o for o in held[module] if o is not module and o in roots), None)
        if owner is not None:
            roots.pop(module)
            if module in used:
                passed_by.setdefault(owner, "a part of it is called on its own, so that gradients flow past forward()")
    return _complete(_merged([_model(module, run, history, passed_by.get(module)) for module in roots]), run)


def _complete(models: list[Model], run: Interpreter) -> list[Model]:
    """Lists of models are wrapped as a whole, where all in them train alike."""
    lists = {event.node: unwrapped(event.value) for event in run.of("bind_each")}
    result = []
    for model in models:
        if model.wrapping is not None and model.wrapping.each:
            held = next((held for node, held in lists.items() if _binds(node, model.wrapping)), set())
            ours = {each.key for each in (model.object, *model.alternatives)}
            known = all(isinstance(thing, Object) and thing.key in ours for thing in held)
            if model.bypassed is not None or not held or not known:
                model = replace(model, wrapping=None)
        result.append(model)
    return result


def _binds(node: ast.AST, wrapping: Wrapping) -> bool:
    """Whether an assignment binds the name of what is wrapped."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(target is wrapping.target for target in targets)


UNSEEN = "cannot see"


def unseen_model(optimizer: Object, run: Interpreter) -> tuple[Site, str] | None:
    """Where a model is made of which an optimizer is given the parameters, if nothing is known of it."""
    homes = [optimizer.source, *run.project.sources]
    for source in dict.fromkeys(homes):
        for node in ast.walk(source.tree) if source is optimizer.source or source is run.project.entry else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("parameters", "named_parameters") or node not in run.values:
                continue
            model = node.func.value
            if run.values.get(model, NOTHING).things or not isinstance(model, (ast.Name, ast.Attribute)):
                continue
            places = dict.fromkeys([source, *run.project.sources])
            found = ((each, _made_of(model, each)) for each in places)
            source, made = next(((each, made) for each, made in found if made is not None), (source, None))
            if made is None and isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name):
                made = _made_of(model.value, source)  # `benchmark.model` of `benchmark = get_benchmark(name)`
            origin = f", made by {shortened(source.code(made.value))}" if made is not None else ""
            advice = _lost_star(made.value, run) if made is not None else None
            advice = advice or "import the class and name it"
            reason = f"{UNSEEN} which class {ast.unparse(model)} is of{origin}: {advice}"
            return Site(source, made or node), reason
    return None


def _lost_star(made: ast.expr, run: Interpreter) -> str | None:
    """The `from module import *` without a module at hand that a function which is defined nowhere may come from."""
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name) or made.func.id in dir(builtins):
        return None
    names = {t.name for t in run.values.get(made.func, NOTHING).things if isinstance(t, External)}
    if names != {f"builtins.{made.func.id}"}:
        return None
    for source in run.project.sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.ImportFrom) or node.names[0].name != "*" or node.level or not node.module:
                continue
            if node.module in run.project.modules or run.catalog.knows(node.module):
                continue
            found = f"{made.func.id} is defined nowhere, and `from {node.module} import *` finds no module"
            beside = source.path.parent.joinpath(*node.module.split(".")).with_suffix(".py")
            if beside.is_file():
                found += (
                    f"; Python 3 wants `from .{node.module} import *` in {source.path.name} of {beside.parent.name}"
                )
            return found
    return None


def _made_of(model: ast.Name | ast.Attribute, source: Source) -> ast.Assign | None:
    """The statement that first binds a name."""
    bound = ast.unparse(model)
    again = (ast.Name, ast.Attribute)
    return next(
        (
            each
            for each in ast.walk(source.tree)
            if isinstance(each, ast.Assign)
            and any(ast.unparse(target) == bound for target in each.targets)
            and isinstance(each.value, ast.Call)
            and not any(isinstance(n, again) and ast.unparse(n) == bound for n in ast.walk(each.value))
        ),
        None,
    )


def _calls_itself(event: Event, module: Object) -> bool:
    """`self(x)` in a method such as `model.log_probs(x)`: the module itself, whatever is wrapped around it."""
    return bool(event.calls) and event.calls[-1].function.owner is module


def _merged(models: list[Model]) -> list[Model]:
    """One model for each place to wrap at: which of several classes a factory makes is known only when it runs."""
    found: dict[object, Model] = {}
    places = [(model, _where_wrapped(model)) for model in models]
    around = {where for model, where in places if model.data_parallel}
    for model, where in places:
        key: object = model.object if where is None or model.data_parallel else where
        if where in around and not model.data_parallel:
            reason = model.bypassed or "another model that may stand in its place brings a wrapper of its own"
            model = replace(model, bypassed=reason)
        other = found.get(key)
        if other is not None:
            model = replace(
                other,
                bypassed=other.bypassed or model.bypassed,
                batch_norm=other.batch_norm or model.batch_norm,
                sometimes_unused=other.sometimes_unused or model.sometimes_unused,
                dropped=tuple(dict.fromkeys((*other.dropped, *model.dropped))),
                alternatives=(*other.alternatives, model.object),
            )
        found[key] = model
    return [_as_at_its_wrapper(model, list(found.values())) for model in found.values()]


def _as_at_its_wrapper(model: Model, models: Sequence[Model]) -> Model:
    """One line wraps whichever model is chosen, or several in turn: what one of them needs all get."""
    sites = {site.node for site in model.data_parallel}
    alike = [each for each in models if sites.intersection(site.node for site in each.data_parallel)]
    return replace(
        model,
        batch_norm=model.batch_norm or any(each.batch_norm for each in alike),
        sometimes_unused=model.sometimes_unused or any(each.sometimes_unused for each in alike),
    )


def _where_wrapped(model: Model) -> tuple[ast.stmt, str] | None:
    return None if model.wrapping is None else (model.wrapping.statement, ast.dump(model.wrapping.target))


def _place(thing: Thing) -> tuple[int, int, str]:
    """Where a thing is made; one call of a factory makes several."""
    node = getattr(thing, "node", None)
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), str(getattr(thing, "name", ""))


def unwrapped(value: Value) -> set[Thing]:
    """What a value holds, without wrappers."""
    return {t.module if isinstance(t, Wrapped) else t for t in value.things}


def _model(module: Object, run: Interpreter, history: History, bypass: str | None) -> Model:
    members = parts(module)
    wraps = [e for e in history.wraps if any(t in members or module in parts_of(t) for t in unwrapped(e.value))]
    shards = any(e.detail.const == "fsdp" for e in wraps)
    wrapped = shards or any(e.detail.const == "ddp" for e in wraps) or history.averaged
    parallel = tuple(Site(e.source, e.node) for e in wraps if e.detail.const == "data_parallel")
    foreign = tuple(
        Site(e.source, e.node) for e in wraps if e.detail.const == "fully_sharded" and module in unwrapped(e.value)
    )
    if bypass is None and not wrapped:
        bypass = _pattern(module, history) or _changes(module, history) or _parts_by_turns(module, run, history)
    dropped = tuple(site for site in parallel if _is_conditional(site))
    # what is wrapped in both branches has the keys of a wrapper in its checkpoints, and keeps them
    dropped = tuple(site for site in dropped if not any(_alternatives(site, other) for other in parallel))
    parallel = tuple(site for site in parallel if site not in dropped)
    whole = {e.node for e in wraps if module in unwrapped(e.value)}  # not `model.encoder = nn.DataParallel(...)`
    ours = tuple(site for site in dropped if site.node in whole)
    return Model(
        module,
        None if wrapped else _in_place(foreign) or _after_dropped(ours) or _wrapping(module, run, history),
        wrapped,
        None if wrapped else bypass,
        normalises(module, run),
        unused.is_sometimes(parts(module), run) or _leaves_outputs(module, run),
        parallel,
        dropped,
        tuple(site for site in foreign if _in_place((site,)) is not None),
        sharded=shards,
        moved_later=tuple(_moved_later(module, wraps, run)),
    )


def _moved_later(module: Object, wraps: list[Event], run: Interpreter) -> Iterator[Site]:
    """`model = nn.DataParallel(model)`, and then `model.cuda()`."""
    first = next((e.order for e in wraps if module in unwrapped(e.value)), None)
    for event in run.of("move"):
        if first is None or event.order < first or not isinstance(event.node, ast.Call):
            continue
        function = event.node.func
        if isinstance(function, ast.Attribute) and any(function.value is wrap.node for wrap in wraps):
            continue  # `nn.DataParallel(model).cuda()`
        around = any(isinstance(t, Wrapped) and t.module is module for t in event.value.things)
        if around and isinstance(function, ast.Attribute) and function.attr in ("cuda", "to", "xpu", "mps"):
            yield Site(event.source, event.node)


def _in_place(foreign: tuple[Site, ...]) -> Wrapping | None:
    """Where `model = FSDP(model)` is."""
    for site in foreign:
        statement = site.statement
        if isinstance(statement, ast.Assign) and _moved(site) is statement.value:
            assert isinstance(site.node, ast.expr)
            return Wrapping(site.source, statement, statement.targets[0], site.node)
    return None


def _moved(site: Site) -> ast.AST:
    """`FSDP(model).to(device)`, from the wrapper inside it."""
    node = site.node
    while isinstance(site.source.parents.get(node), ast.Attribute):
        call = site.source.parents.get(site.source.parents[node])
        if not isinstance(call, ast.Call):
            break
        node = call
    return node


def _is_conditional(site: Site) -> bool:
    """`if torch.cuda.device_count() > 1: model = nn.DataParallel(model)`"""
    statement = site.statement
    parent = site.source.parents.get(statement)
    bound = isinstance(statement, ast.Assign) and statement.value is _moved(site)
    return bound and isinstance(parent, ast.If) and not is_main_guard(parent)


def _alternatives(site: Site, other: Site) -> bool:
    """Whether two wrappers stand in the two branches of one condition."""
    parents = (site.source.parents.get(site.statement), other.source.parents.get(other.statement))
    return parents[0] is parents[1] and site.source.block(site.statement) is not other.source.block(other.statement)


def _after_dropped(dropped: tuple[Site, ...]) -> Wrapping | None:
    """Where the condition for a dropped wrapper ends."""
    for site in dropped:
        statement = site.statement
        assert isinstance(statement, ast.Assign)
        return Wrapping(site.source, after_conditions(site.source, statement, None), statement.targets[0], None)
    return None


def _averages_by_hand(run: Interpreter) -> bool:
    """Whether the script itself reduces gradients over the ranks."""
    return any(
        isinstance(e.node, ast.Call)
        and e.node.args
        and isinstance(e.node.args[0], ast.Attribute)
        and e.node.args[0].attr == "grad"
        for e in run.of("collective")
    )


def keys(things: Iterable[Thing]) -> Keys:
    """What tells the objects among some things from others, in every run of the interpreter."""
    return frozenset(t.key for t in things if isinstance(t, Object))


def members(models: Iterable[Model]) -> dict[Key, Object]:
    """The modules that a model may be, by the keys of their parts."""
    roots = (each for model in models for each in (model.object, *model.alternatives))
    return {part.key: root for root in roots for part in parts(root)}


def parts_of(thing: Thing) -> list[Object]:
    """`parts` for anything."""
    return parts(thing) if isinstance(thing, Object) else []


def normalises(module: Object, run: Interpreter) -> bool:
    """Whether a module, or a part of it, normalises over batches, or a module that it takes parts of.

    What comes from a library of which nothing is known may: to synchronise layers that are not there changes nothing.
    """
    members = _and_what_gave_parts(module)
    return any(_has_batch_norm(each, run) for each in members) or any(_is_unseen(each, run) for each in members)


def _is_unseen(module: Object, run: Interpreter) -> bool:
    """Whether a module, its class's base or a part that its methods call comes from a library that is not known."""
    if module.cls is None:
        return not run.catalog.knows(module.name)
    bases = [base for each in module.cls.line() for base in each.bases if isinstance(base, External)]
    called = {node.func.attr for node in _calls(module.cls) if isinstance(node.func, ast.Attribute)}
    held = _flattened(value for name, value in module.attributes.items() if name in called)
    made = [thing for thing in held if isinstance(thing, Object) and thing.cls is None and not thing.roles]
    return not all(map(run.catalog.knows, [*(each.name for each in bases), *(each.name for each in made)]))


CONTAINERS = frozenset(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))


def _and_what_gave_parts(module: Object) -> list[Object]:
    """A module, all that it holds, and what it has layers of: `nn.Sequential(*list(resnet.children())[:-1])`."""
    found: dict[Object, None] = {}
    pending = [module]
    while pending:
        for each in parts(pending.pop()):
            if each not in found:
                found[each] = None
                pending += [t for t in _taken_from(each) if t not in found]
    return list(found)


def _taken_from(module: Object) -> Iterator[Object]:
    """Modules of which a container holds layers, or a class in an attribute that its methods call."""
    if module.cls is None:
        held = [*module.args, *module.keywords.values()] if module.name in CONTAINERS else []
    else:
        called = {node.func.attr for node in _calls(module.cls) if isinstance(node.func, ast.Attribute)}
        held = [value for name, value in module.attributes.items() if name in called]
    for thing in _flattened(held):
        inner = thing.module if isinstance(thing, Inside) else None
        inner = inner.module if isinstance(inner, Wrapped) else inner
        if isinstance(inner, Object):
            yield inner


def _calls(cls: Class) -> Iterator[ast.Call]:
    return (node for each in cls.line() for node in ast.walk(each.node) if isinstance(node, ast.Call))


def _flattened(values: Iterable[Value]) -> Iterator[Thing]:
    """What values hold, and what lists and dicts among it hold."""
    pending, seen = list(values), set[int]()
    while pending:
        for thing in pending.pop().things:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            yield thing
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                pending += [*thing.entries.values(), thing.element]
            elif isinstance(thing, Stream):
                pending.append(thing.element)


def _has_batch_norm(module: Object, run: Interpreter) -> bool:
    """Whether a module normalises over batches, or its class, or what that calls, speaks of something that does."""
    first = module.args[0].const if module.args else None
    named = module.keywords["norm"].const if "norm" in module.keywords else None  # `GCN(4, 8, 2, norm="batch_norm")`
    if isinstance(named, str) and named.lower().replace("_", "") == "batchnorm":
        return True
    if "batch_norm" in module.roles or _brings_batch_norm(module.name, first, run):
        return True
    pending: list[Class | Function] = list(module.cls.line()) if module.cls is not None else []
    seen: set[Class | Function] = set()
    while pending:
        spoken = pending.pop()
        if spoken in seen:
            continue
        seen.add(spoken)
        for node in ast.walk(spoken.node):
            if not isinstance(node, (ast.Attribute, ast.Name)):
                continue
            for thing in run.values.get(node, NOTHING).things:
                if isinstance(thing, External):
                    if _brings_batch_norm(thing.name, _first_argument(node, spoken.source, run), run):
                        return True
                elif isinstance(thing, Class):
                    pending += thing.line()
                elif isinstance(thing, Function) and thing.owner is None:
                    pending.append(thing)
    return False


def _first_argument(node: ast.expr, source: Source, run: Interpreter) -> object:
    """What a call of ``node`` is given first, as far as known."""
    parent = source.parents.get(node)
    called = isinstance(parent, ast.Call) and parent.func is node and parent.args
    return run.values.get(parent.args[0], Value()).const if called else None  # type: ignore[union-attr]


def _brings_batch_norm(name: str, first: object, run: Interpreter) -> bool:
    return name.rpartition(".")[2].startswith(("BatchNorm", "LazyBatchNorm")) or run.catalog.normalises(name, first)


def _pattern(module: Object, history: History) -> str | None:
    """Orders of forward and backward passes that DistributedDataParallel does not synchronise."""
    last: Event | None = None
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    for event in sorted(passes, key=lambda e: e.order):
        if event.kind == "forward":
            last = None
        elif last is not None and event.node is not last.node and not exclusive(event.source, event.node, last.node):
            return (
                "it goes through backward twice after one forward, which DistributedDataParallel leaves unsynchronised"
            )
        else:
            last = event
    return None


def _parts_by_turns(module: Object, run: Interpreter, history: History) -> str | None:
    """Whether several forward passes of one step may run different parts: the wrapper looks for unused parameters in
    the last of them alone."""
    before: list[Event] = []
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    for event in sorted(passes, key=lambda e: e.order):
        if event.kind == "forward":
            before.append(event)
            continue
        loops = {loop.node for loop in event.loops}
        again = any(loop.node not in loops for each in before for loop in each.loops)
        pairs = ((one, other) for at, one in enumerate(before) for other in before[:at] if one.node is not other.node)
        if again or any(not exclusive(one.source, one.node, other.node) for one, other in pairs):
            if unused.runs_by_chance(parts(module), run):
                return "it runs other parts in each of several forward passes before one backward pass"
        before = []
    return None


def _changes(module: Object, history: History) -> str | None:
    """Whether parameters are frozen or released during training, which the wrapper does not notice."""
    backwards = history.backwards.get(module)
    if backwards and any(e.order > backwards[0].order for e in _freezes(module, history)):
        return "its parameters are frozen or released during training, which DistributedDataParallel does not notice"
    if backwards and any(e.order > backwards[0].order for e in _grows(module, history)):
        return "it is given further layers during training, which DistributedDataParallel does not notice"
    return None


def _leaves_outputs(module: Object, run: Interpreter) -> bool:
    """Whether a training step leaves out one of several outputs, and the part that made it: `score, _ = model(x)`."""
    for event in run.events:
        if event.kind != "forward" or not event.grad or module not in unwrapped(event.value):
            continue
        parent = event.source.parents.get(event.node)
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
            targets = parent.targets[0].elts
            left = [
                at
                for at, each in enumerate(targets)
                if isinstance(each, ast.Name) and (each.id.startswith("_") or not _is_read(each.id, event))
            ]
            if left and not _goes_into_others(module, left, len(targets)):
                return True
    return False


def _goes_into_others(module: Object, left: list[int], count: int) -> bool:
    """Whether outputs that are left out are what the others are computed from: `logits, cross_entropy(logits, y)`."""
    found = module.cls.find("forward") if module.cls is not None else None
    node = next((t.node for t in found[1].things if isinstance(t, Function)), None) if found is not None else None
    returns = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)] if node is not None else []
    if len(returns) != 1 or node is None or not isinstance(returns[0], ast.Tuple) or len(returns[0].elts) != count:
        return False
    outputs = returns[0].elts
    others = [each for at, each in enumerate(outputs) if at not in left]
    kept = {each.id for each in others if isinstance(each, ast.Name)}
    bound = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)]
    computed = [*others, *(n.value for n in bound if n.targets[0].id in kept)]  # type: ignore[attr-defined]
    loops = [each for each in ast.walk(node) if isinstance(each, (ast.For, ast.While))]
    again = {n.id for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    again |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}  # `x = x - f(x)`, its last one unread
    return all(
        isinstance(each, ast.Name) and each.id not in again and any(_reads(other, each) for other in computed)
        for each in (outputs[at] for at in left)
    )


def _reads(node: ast.expr, name: ast.expr) -> bool:
    """Whether an expression reads a variable, with its gradient as far as the text tells."""
    cuts = any(isinstance(each, ast.Attribute) and each.attr in ("detach", "data", "argmax") for each in ast.walk(node))
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return isinstance(name, ast.Name) and name.id in names and node is not name and not cuts


def _is_read(name: str, event: Event) -> bool:
    """Whether the function in which a model is called reads what it binds there to a name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    homes = (each for each in event.source.ancestors(event.node) if isinstance(each, kinds))
    home = next(homes, event.source.tree)
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(home))


# -------------------------------------------------------------------- wrapping


def settled_at(module: Object, run: Interpreter) -> Wrapping | None:
    """Where a module that nothing wraps is complete."""
    return _wrapping(module, run, _history(run))


def _wrapping(module: Object, run: Interpreter, history: History) -> Wrapping | None:
    """After the last statement that makes, moves or binds the model before its first use."""
    grown = max((event.order for event in _grows(module, history)), default=-1)
    quiet = [e for e in run.of("forward") if not e.grad and not e.loops and module in unwrapped(e.value)]
    tried = [*(event for event in history.forwards.get(module, []) if _is_trial(event)), *quiet]
    uses = [event for event in history.forwards.get(module, []) if event not in tried] or run.of("backward")
    use = next((event for event in uses if event.order > grown), None)
    first = use.order if use is not None else len(run.events)
    chosen: Event | None = None
    alias: Event | None = None
    called: Wrapping | None = None
    places = history.places.get(module, [])
    made = sorted((*places[:1], *history.lists.get(module, [])[:1]), key=lambda event: event.order)
    made_in = {loop.node for event in made[:1] for loop in event.loops}
    for event in places:
        if event.order >= first:
            break
        if any(loop.node not in made_in for loop in event.loops if not isinstance(loop.node, ast.comprehension)):
            continue  # a model is wrapped once, not in each round of a loop
        if event is not places[0] and _sets_mode(event.node):
            continue
        if event is not places[0] and (after := _after_holder(event, module, run, uses, use)) is not None:
            called = after
        elif event.kind == "alias_part":
            continue  # `self.model, self.decay = model, decay`
        elif event.kind == "alias":
            alias = alias or event
        elif event.kind != "move" or isinstance(event.source.statement(event.node), ast.Expr):
            if _lasts(event, use):
                chosen, called = event, None
            else:
                called = _after_call(event, module, run, use) or called
    if called is not None:
        return called
    placed = chosen or alias
    if placed is None:
        return _in_list(module, history, use, first)
    found = _after_initialisation(at(placed, use), use, run)
    later = sorted((*_freezes(module, history), *_grows(module, history), *tried), key=lambda event: event.order)
    later = [e for e in later if placed.order < e.order < first and e.function == placed.function]
    if later and later[-1].source is found.source:  # what is frozen by then, the wrapper leaves alone
        statement = found.source.statement(later[-1].node)
        loops = [a for a in found.source.ancestors(statement) if isinstance(a, (ast.For, ast.While, ast.With))]
        statement = after_conditions(found.source, loops[-1] if loops else statement, use, found.target)
        if use is None or not within(use, frozenset([statement])):
            return Wrapping(found.source, statement, found.target, None)
    return found


def _is_trial(event: Event) -> bool:
    """`model(torch.rand(1, 3, 32, 32))`, or `print(...)` of it: to see that it runs, before it is wrapped, whose batch
    statistics would count the same rows once for each rank."""
    statement = event.source.statement(event.node)
    if event.loops or not isinstance(statement, (ast.Expr, ast.Assign)):
        return False
    if isinstance(statement, ast.Expr):
        return statement.value is event.node or _prints(statement)
    target = statement.targets[0]
    if statement.value is not event.node or not isinstance(target, ast.Name):
        return False
    home = event.source.home(statement)
    reads = (n for n in ast.walk(home) if isinstance(n, ast.Name) and n.id == target.id and n is not target)
    return all(_prints(event.source.statement(each)) for each in reads)


def _prints(statement: ast.stmt) -> bool:
    shown = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(shown, ast.Call) and last_name(shown.func) == "print"


def _sets_mode(node: ast.AST) -> bool:
    """`self.model = self.model.train()`"""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    func = node.value.func
    own = isinstance(func, ast.Attribute) and ast.unparse(func.value) in map(ast.unparse, node.targets)
    return own and isinstance(func, ast.Attribute) and func.attr in ("train", "eval")


def _after_initialisation(found: Wrapping, use: Event | None, run: Interpreter) -> Wrapping:
    """After `init_weights(model)`, which may ask for the classes of layers or fills them, below where it is made."""
    around = found.source.parents.get(found.statement)
    blocks = (getattr(around, name, None) for name in ("body", "orelse", "finalbody"))
    block = next((body for body in blocks if isinstance(body, list) and found.statement in body), [])
    target = ast.unparse(found.target)
    for statement in block[block.index(found.statement) + 1 :] if block else ():
        call = statement.value if isinstance(statement, ast.Expr) else None
        if use is not None and within(use, frozenset([statement])):
            break
        if isinstance(call, ast.Call) and any(ast.unparse(each) == target for each in call.args):
            if any(isinstance(t, Function) and _initialises(t) for t in run.values.get(call.func, Value()).things):
                return Wrapping(found.source, statement, found.target, None)
        elif any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == target for n in ast.walk(statement)):
            break
    return found


def _initialises(function: Function) -> bool:
    """Whether a function fills parameters by layer."""
    calls = [node for node in ast.walk(function.node) if isinstance(node, ast.Call)]
    return any("init." in ast.unparse(each.func) for each in calls)


def _in_list(module: Object, history: History, use: Event | None, first: int) -> Wrapping | None:
    """After `nets = [Net(), Net()]`, or the loop over it that moves them, for a model that has no name of its own."""
    event = next((e for e in history.lists.get(module, []) if e.order < first and _lasts(e, use)), None)
    if event is None or _freezes(module, history):
        return None
    found = replace(at(event, use), inside=None, each=True)
    if not isinstance(found.target, (ast.Name, ast.Attribute)):
        return None
    for moved in history.places.get(module, []):
        if moved.kind != "move" or not event.order < moved.order < first:
            continue
        loop = next((each.node for each in moved.loops), None)
        if not isinstance(loop, ast.For) or moved.loops[0].source is not found.source:
            return None
        if ast.unparse(loop.iter) != ast.unparse(found.target) or use is not None and within(use, frozenset([loop])):
            return None
        found = replace(found, statement=after_conditions(found.source, loop, use))
    return found


def _lasts(event: Event, use: Event | None) -> bool:
    """Whether what is bound where ``event`` is still holds where the model is used: `def initialize(model):
    model.apply(...)` binds a name that nobody else sees."""
    if use is None:
        return True
    if event.kind != "move" or event.function in _running(use):
        return True
    target = at(event, use).target
    if not isinstance(target, ast.Name):
        return True
    assert event.function is not None
    return any(
        isinstance(node, ast.Return) and node.value is not None and target.id in _names(node.value)
        for node in ast.walk(event.function.node)
    )


def _running(event: Event) -> tuple[Function | None, ...]:
    """The functions that are being run, and None for the module."""
    return (None, *(call.function for call in event.calls))


def _after_call(event: Event, module: Object, run: Interpreter, use: Event | None) -> Wrapping | None:
    """After `initialize(model)`, in the function that uses the model."""
    for index, call in reversed(list(enumerate(event.calls))):
        if call.node is None:
            return None
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        target = next((arg for arg in given if module in unwrapped(run.values.get(arg, Value()))), None)
        statement = call.source.statement(call.node)
        if not isinstance(target, (ast.Name, ast.Attribute)) or not isinstance(statement, ast.Expr):
            return None
        around = event.calls[index - 1].function if index else None
        if use is None or around in _running(use):
            return Wrapping(call.source, after_conditions(call.source, statement, use, target), target, None)
    return None


def _after_holder(
    event: Event, module: Object, run: Interpreter, uses: list[Event], use: Event | None
) -> Wrapping | None:
    """After `judge = Prototypes(model)`, which keeps the model in another one that does not train: it goes on without
    the wrapper, and so do its keys."""
    owner = event.function.owner if event.function is not None else None
    if use is None or not isinstance(owner, Object) or "module" not in owner.roles or owner is module:
        return None
    if any(
        function is not None and function.owner is owner for each in uses if each.grad for function in _running(each)
    ):
        return None
    for index, call in enumerate(event.calls):
        if call.node is None:
            return None
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        target = next((arg for arg in given if module in unwrapped(run.values.get(arg, Value()))), None)
        around = event.calls[index - 1].function if index else None
        if isinstance(target, ast.Name) and around in _running(use):
            statement = after_conditions(call.source, call.source.statement(call.node), use, target)
            return Wrapping(call.source, statement, target, None)
    return None


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _freezes(module: Object, history: History) -> list[Event]:
    """Where parameters of a module are frozen or released."""
    events = {e.order: e for part in parts(module) for e in history.freezes.get(part, [])}
    return [events[order] for order in sorted(events)]


def _grows(module: Object, history: History) -> list[Event]:
    """Where a module is given further layers after it was made."""
    events = {e.order: e for part in parts(module) for e in history.grows.get(part, [])}
    made = next((e.order for e in history.places.get(module, [])), -1)
    return [events[order] for order in sorted(events) if order > made]


def at(event: Event, use: Event | None) -> Wrapping:
    """The place that an event names."""
    source = event.source
    if event.kind == "bind_part":
        assert isinstance(event.node, ast.expr)
        statement = after_conditions(source, source.statement(event.node), use, event.node)
        return Wrapping(source, statement, event.node, None)
    if event.kind == "move":
        assert isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute)
        target = event.node.func.value
        while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        return Wrapping(source, after_conditions(source, source.statement(event.node), use, target), target, None)
    assert isinstance(event.node, (ast.Assign, ast.AnnAssign))
    target = event.node.targets[-1] if isinstance(event.node, ast.Assign) else event.node.target
    statement = after_conditions(source, event.node, use, target)
    if statement is not event.node or isinstance(event.node.value, ast.IfExp):
        return Wrapping(source, statement, target, None)
    return Wrapping(source, event.node, target, event.node.value)


def after_conditions(
    source: Source, statement: ast.stmt, use: Event | None, target: ast.expr | None = None
) -> ast.stmt:
    """A model moved `if use_cuda:` is wrapped after that, unless it is also used in there, or None `else`."""
    parent = source.parents.get(statement)
    while isinstance(parent, (ast.If, ast.Try, ast.ExceptHandler, ast.Match, ast.match_case)) and not is_main_guard(
        parent
    ):
        if isinstance(parent, ast.If) and target is not None:
            name = ast.unparse(target)
            if _is_none_in(parent, name) or _is_made_beside(source, parent, name):
                break
        if use is not None and within(use, frozenset([parent])):
            break
        if isinstance(parent, ast.stmt):
            statement = parent
        parent = source.parents.get(parent)
    return statement


def _is_none_in(branch: ast.If, name: str) -> bool:
    """Whether one of the branches of a condition says that there is no such model."""
    bound = (each for each in (*branch.body, *branch.orelse) if isinstance(each, ast.Assign))
    nothing = (each for each in bound if isinstance(each.value, ast.Constant) and each.value.value is None)
    return any(ast.unparse(target) == name for each in nothing for target in each.targets)


def _is_made_beside(source: Source, branch: ast.If, name: str) -> bool:
    """Whether a condition of its own beside this one makes another model of that name: `if kind == "a": net = A()`,
    then `if kind == "b": net = B()`. After either one, the name may mean the other's model, or nothing."""
    top: ast.AST = branch
    while isinstance(around := source.parents.get(top), ast.If) and around.orelse == [top]:
        top = around
    around = source.parents.get(top)
    blocks = (getattr(around, field, None) for field in ("body", "orelse", "finalbody", "handlers"))
    block: list[ast.stmt] = next((body for body in blocks if isinstance(body, list) and top in body), [])
    makers = [
        each
        for each in block
        if isinstance(each, ast.If) and any(_makes_anew(statement, name) for statement in _in_branches(each))
    ]
    return top in makers and len(makers) > 1


def _in_branches(branch: ast.If) -> Iterator[ast.stmt]:
    """The statements of a condition's branches, `elif` included."""
    for each in (*branch.body, *branch.orelse):
        if isinstance(each, ast.If):
            yield from _in_branches(each)
        else:
            yield each


def _makes_anew(statement: ast.stmt, name: str) -> bool:
    """`net = Net()`, not `net = net.cuda()` or `net = nn.DataParallel(net)`, nor what is loaded in its place."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    if name not in map(ast.unparse, statement.targets) or last_name(statement.value.func) == "load":
        return False
    return not any(
        isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == name for node in ast.walk(statement.value)
    )


def is_main_guard(node: ast.AST) -> bool:
    """`if __name__ == ...`"""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )


def wrap_plan(models: list[Model]) -> dict[ast.stmt, tuple[ast.expr, ...]]:
    """The wraps that the interpreter takes for granted."""
    plan: dict[ast.stmt, tuple[ast.expr, ...]] = {}
    for model in models:
        if model.wrapping is not None and model.bypassed is None and not model.data_parallel:
            plan[model.wrapping.statement] = (*plan.get(model.wrapping.statement, ()), model.wrapping.target)
    return plan
