"""How models are sharded by FSDP: after which statement, in which units, and with which methods."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

from autodist.interpreter import GROWS, Event, Interpreter, once_a_run
from autodist.models import Key, Keys, at, keys, optimized_by, parts, unwrapped, whose_parameters
from autodist.models.history import history_of
from autodist.models.nameless import in_list
from autodist.models.trained import asks_for_wrapper
from autodist.models.wrapping import is_instead
from autodist.regions import within
from autodist.script import Model, Site, Wrapping
from autodist.solve.passes import passes
from autodist.source import Source, operands
from autodist.values import NOTHING, External, Function, Items, Object, Parameters, Table, Thing, Value, Wrapped

UNCALLED = frozenset(["torch.nn.ModuleList", "torch.nn.ModuleDict"])
CONTAINERS = UNCALLED | {"torch.nn.Sequential"}
KEEPING = ("model_state_dict", "set_item", "keep")
"""How parameters come into something that lasts."""
CONFIGURING = frozenset(
    "parameters named_parameters train eval modules children state_dict load_state_dict requires_grad_ in_features "
    "out_features numel weight".split()
)


# -------------------------------------------------------------------- models


def sharded(models: Iterable[Model], run: Interpreter) -> list[Model]:
    """The models, each with the place and the units to shard it in, and with those copies of them that go along."""
    found = [_sharded(model, run) for model in models]
    found = [replace(model, copied=tuple(site for site, _ in _late_copies(model, run))) for model in found]
    copies = [copy for model in found for copy in (*_copies(model, run), *_followers(model, run))]
    known = keys(each for model in found for each in (model.object, *model.alternatives))
    return found + [copy for copy in {c.object.key: c for c in copies}.values() if copy.object.key not in known]


def _sharded(model: Model, run: Interpreter) -> Model:
    if model.sharded:
        return model
    if model.wrapped:
        wraps = [e for e in run.of("wrap") if e.detail.const == "ddp" and _holds(e.value, model.object)]
        if not wraps:
            return model
        # the statistics of its batch normalisation stay as the script has them
        gone = tuple({e.node: Site(e.source, e.node) for e in wraps}.values())
        model = replace(model, wrapped=False, batch_norm=False, data_parallel=gone)
    return replace(
        model,
        data_parallel=(*model.data_parallel, *model.pinned, *model.partial),  # none of them stays
        pinned=(),
        partial=(),
        prefixed=tuple(_prefixed(model, run, alone=False)),
        misnamed=tuple(_prefixed(model, run, alone=True)),
        prefixed_loads=tuple(_prefixed_loads(model, run)),
        wrapping=_place(model.object, run),
        bypassed=None,
        sometimes_unused=False,
        units=(
            ()
            if held_by(model.object)
            else tuple(unit for unit in _common(model, partial(units, run=run)) if not _is_tied(model, unit, run))
        ),
        methods=tuple(_methods_of(model, run)),
    )


def _common(model: Model, parts: Callable[[Object], Iterator[str]]) -> Iterator[str]:
    """What a model has, whichever of its alternatives it is."""
    others = [set(parts(each)) for each in model.alternatives]
    yield from (each for each in parts(model.object) if all(each in other for other in others))


def uncommon_methods(model: Model, run: Interpreter) -> list[str]:
    """Methods besides `forward` that run layers, of some of the models only that may stand in one place."""
    each = [set(_methods(module, run)) for module in (model.object, *model.alternatives)]
    return sorted(name for name in set().union(*each) if not _is_common(name, model))


def _is_common(name: str, model: Model) -> bool:
    """Whether a model has a method, whichever of its alternatives it is."""
    classes = [module.cls for module in (model.object, *model.alternatives)]
    return all(cls is not None and cls.find(name) for cls in classes)


def _methods_of(model: Model, run: Interpreter) -> Iterator[str]:
    """The methods of a model, and those that a library may call of it, whichever of its alternatives it is."""
    each = (model.object, *model.alternatives)
    called = dict.fromkeys(name for module in each for name in _methods(module, run))
    offered = dict.fromkeys(name for module in each for name in _offered(module, run))
    yield from called
    yield from (name for name in offered if name not in called and _is_common(name, model))


def _prefixed(model: Model, run: Interpreter, alone: bool) -> list[Site]:
    """Where states of a model in a wrapper are taken by all ranks, or else taken ``alone``, or loaded from what cannot
    be seen: sharding leaves no wrapper, and other keys."""
    found: dict[ast.AST, Site] = {}
    read = {site.statement for site in _prefixed_loads(model, run)}
    states = run.of("model_state_dict")
    bare = {e.node for e in states if _holds(e.value, model.object) and not _is_in_wrapper(e, model)}
    if any(map(_gives_wrapper, model.data_parallel)):
        bare -= {event.node for event in states if _is_in_wrapper(event, model)}
    for event in (*states, *run.of("model_load_state_dict")):
        if event.node in bare:
            continue  # `raw = model.module if isinstance(model, nn.DataParallel) else model`
        by_all = event.kind == "model_state_dict" and not event.on_one_rank and rank_check(event, run) is None
        if _is_in_wrapper(event, model) and by_all is not alone and event.source.statement(event.node) not in read:
            found[event.node] = Site(event.source, event.node)
    return list(found.values())


def _prefixed_loads(model: Model, run: Interpreter) -> Iterator[Site]:
    """The states that are loaded into a model in a wrapper, from whose keys the prefix can be taken."""
    for event in run.of("model_load_state_dict"):
        if _is_in_wrapper(event, model) and isinstance(event.node, ast.Call) and event.node.args:
            yield Site(event.source, event.node.args[0])


def _is_in_wrapper(event: Event, model: Model) -> bool:
    wrapped = (isinstance(t, Wrapped) and t.kind in ("ddp", "data_parallel") for t in event.value.things)
    return not model.dropped and _holds(event.value, model.object) and all(wrapped)


def _gives_wrapper(site: Site) -> bool:
    """`if not isinstance(model, nn.DataParallel): model = nn.DataParallel(model)`, behind which there is one."""
    parent = site.source.parents.get(site.statement)
    return isinstance(parent, ast.If) and asks_for_wrapper(parent.test)


def _holds(value: Value, module: Object) -> bool:
    return module.key in keys(unwrapped(value))


def _copies(model: Model, run: Interpreter) -> Iterator[Model]:
    """Copies of a model that are made before it is sharded: a teacher or running average follows its weights."""
    first = start(model.object, run)
    for event in run.of("copy"):
        if event.order < first and _holds(event.value, model.object):
            for thing in event.detail.things:
                if isinstance(thing, Object):
                    yield _like(model, thing, run, first)
    for _, copy in _late_copies(model, run):
        yield _at_once(_like(model, copy, run, first), run)


CHANGING = (
    "forward",
    "model_method",
    "step",
    "model_load_state_dict",
    "draw_parameters",
    "replace_data",
    "replace_parameter",
)
"""What may lie between a copy of a model and where it is sharded: nothing of that."""


def _late_copies(model: Model, run: Interpreter) -> Iterator[tuple[Site, Object]]:
    """Copies that are made of a model below the optimizer, with the weights that it has ahead of that, each with the
    call in the model's own function that makes it: `ema_model = copy.deepcopy(model).eval()`, `ema = ModelEMA(model)`
    """
    place = model.wrapping
    if place is None or model.alternatives or model.wrapped or model.sharded:
        return
    first = start(model.object, run)
    home = place.source.home(place.statement)
    for event in run.of("copy"):
        if event.order < first or not _holds(event.value, model.object):
            continue
        calls = [(event.node, event.source), *((each.node, each.source) for each in reversed(event.calls))]
        call = next(
            (n for n, source in calls if source is place.source and source.home(n or place.statement) is home), None
        )
        if not isinstance(call, ast.Call) or call.lineno <= place.statement.lineno:
            continue
        if call is event.node:
            same = len(call.args) == 1 and not call.keywords
            known = same and ast.dump(_loaded(call.args[0])) == ast.dump(_loaded(place.target))
        else:
            known = _can_be_made_before(call, event, place, run)
        turns = [each for each in place.source.ancestors(call) if isinstance(each, (ast.For, ast.While, ast.AsyncFor))]
        around = list(place.source.ancestors(place.statement))
        between = run.events[first : event.order]
        changed = any(e.kind in CHANGING and (e.kind == "step" or _holds(e.value, model.object)) for e in between)
        made = [t for t in event.detail.things if isinstance(t, Object)]
        bound = (
            [e for e in _named(made[0], run) if e.source.home(e.node) is event.source.home(event.node)] if made else []
        )
        if known and len(made) == 1 and bound and not changed and all(each in around for each in turns):
            yield Site(place.source, call), made[0]


def _can_be_made_before(call: ast.Call, copy: Event, place: Wrapping, run: Interpreter) -> bool:
    """Whether what makes a copy of a model, among other things, can be called ahead of where that is sharded: it is
    given what there is by then, and does no more with the model."""
    source, end = place.source, place.statement.end_lineno or place.statement.lineno
    lines = range(end + 1, call.lineno + 1)
    for node in ast.walk(call):
        if isinstance(node, ast.Name) and any(each.lineno in lines for each in source.stores(node)):
            return False
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            named = ast.unparse(node)
            stored = (n for n in ast.walk(source.home(call)) if isinstance(n, ast.Attribute) and n.lineno in lines)
            if any(isinstance(n.ctx, ast.Store) and ast.unparse(n) == named for n in stored):
                return False
    inside = [e for e in run.events if any(each.node is call for each in e.calls)]
    modules = keys(t for t in copy.detail.things if isinstance(t, Object)) | keys(unwrapped(copy.value))
    made = any(e.kind in ("bind", "bind_part") and not keys(unwrapped(e.value)) <= modules for e in inside)
    kept = any(e.kind in KEEPING and (e.kind == "model_state_dict" or any(whose_parameters(e.value))) for e in inside)
    return not made and not kept and not any(e.kind in (*CHANGING, *OUTWARD) for e in inside)


OUTWARD = ("print", "log", "write", "save", "load", "random", "optimizer", "loader")
"""What is not done at another time without a difference."""


def _like(model: Model, other: Object, run: Interpreter, before: int) -> Model:
    """Another module that is sharded as a model is, before its parameters are used."""
    found = replace(model, object=other, data_parallel=(), dropped=(), alternatives=(), copied=())
    return replace(found, wrapping=_place(other, run, before), methods=tuple(_methods_of(found, run)))


def _followers(model: Model, run: Interpreter) -> Iterator[Model]:
    """Modules that are made as a model is, and whose parameters the script reads: a running average or a momentum
    encoder computes with those of both. Those that are made once it is sharded are seen to meet it."""
    first = start(model.object, run)
    nodes = sorted(run.apart, key=lambda node: (str(run.sources[node].path), node.lineno, node.col_offset))
    read = [t.module for node in nodes for t in run.values[node].things if isinstance(t, Parameters)]
    read += [t for event in run.of("model_state_dict") if not _is_saved(event) for t in event.value.things]
    ours = keys(parts(model.object))
    for thing in dict.fromkeys(t for t in map(bare, read) if isinstance(t, Object)):
        made = [e.order for e in _named(thing, run)]
        if thing.key in ours or not made or not _is_like(thing, model.object):
            continue
        if min(made) < first:
            yield _like(model, thing, run, first)
        elif any(_meet(node, thing, model.object, run) for node in nodes) or _states_meet(thing, model.object, run):
            yield _at_once(_like(model, thing, run, first), run)


def _at_once(model: Model, run: Interpreter) -> Model:
    """A model that is sharded where it is made."""
    made = min(_named(model.object, run), key=lambda e: e.order)
    place = replace(at(made, made), statement=made.source.statement(made.node), inside=None)
    return replace(model, since=made.order + 1, wrapping=place)


def _meet(node: ast.expr, module: Object, other: Object, run: Interpreter) -> bool:
    """Whether parameters of a module stand beside those of another: `zip(ema.parameters(), model.parameters())`."""
    beside = operands(parent) if isinstance(parent := run.sources[node].parents.get(node), ast.expr) else []
    held = [keys(map(bare, whose_parameters(run.values.get(each, NOTHING)))) for each in (node, *beside)]
    return module.key in held[0] and any(other.key in each for each in held[1:])


def _states_meet(module: Object, other: Object, run: Interpreter) -> bool:
    """`zip(ema.state_dict().values(), model.state_dict().values())`"""
    taken = [(e.source.statement(e.node), e.value) for e in run.of("model_state_dict")]
    met = {statement for statement, value in taken if _holds(value, other)}
    return any(statement in met and _holds(value, module) for statement, value in taken)


def bare(thing: Thing) -> Thing:
    """A module without its wrapper."""
    return thing.module if isinstance(thing, Wrapped) else thing


def _named(module: Object, run: Interpreter) -> list[Event]:
    """Where a module is given a name when it is made, alone or beside others: `student, teacher = Net(), Net()`"""
    return [e for kind in ("bind", "bind_part") for e in _holding(run, kind).get(module.key, ())]


@once_a_run
def _holding(run: Interpreter, kind: str) -> dict[Key, list[Event]]:
    """The events of a kind, by the keys of what they are about."""
    found: dict[Key, list[Event]] = {}
    for event in run.of(kind):
        for key in keys(unwrapped(event.value)):
            found.setdefault(key, []).append(event)
    return found


def _is_like(module: Object, other: Object) -> bool:
    """Whether two modules are made by the same expression, or of the same class of the project."""
    return module.node is other.node or module.cls is not None and module.cls is other.cls


def _is_saved(event: Event) -> bool:
    """Whether a state goes straight into a file, or into another module."""
    taking = ("save", "load_state_dict")
    above = event.source.ancestors(event.node)
    return any(isinstance(a, ast.Call) and getattr(a.func, "attr", "") in taking for a in above)


def start(module: Object, run: Interpreter) -> int:
    """When the parameters of a module are first used or handed to an optimizer; it is sharded before that."""
    return _start(run, module)


@once_a_run
def _start(run: Interpreter, module: Object) -> int:
    use = _first(module, run)
    first = use.order if use is not None else len(run.events)
    bound, chosen = _complete(module, run, first, use)
    return bound.order + 1 if bound is not None and chosen else first


def starts(run: Interpreter, models: Iterable[Model]) -> dict[Key, int]:
    """When each module is sharded that a model may be, by its key."""
    found: dict[Key, int] = {}
    for model in models:
        found |= {each.key: start(each, run) for each in (model.object, *model.alternatives)}
        found |= {model.object.key: model.since} if model.since is not None else {}
    return found


@dataclass(frozen=True)
class Began:
    """When a model is sharded: ``start`` is the event that it is needed for, ``last`` the last one ahead of that in the
    statement after which it is, or further up in its function."""

    wrapping: Wrapping
    start: int
    last: int

    def is_after(self, node: ast.expr, order: int, source: Source) -> bool:
        """Whether an expression that is computed last after so many events meets shards."""
        return order > (self.start if _is_ahead(node, source, self.wrapping) else self.last)


def began(run: Interpreter, models: Iterable[Model]) -> dict[Key, Began]:
    """When modules are sharded, by the keys of their parts."""
    found: dict[Key, Began] = {}
    for model in models:
        for module in (model.object, *model.alternatives) if model.wrapping is not None and not model.wrapped else ():
            assert model.wrapping is not None
            first = starts(run, [model])[module.key]
            last = max((event.order for event in _ahead(run, model.wrapping) if event.order < first), default=-1)
            found |= dict.fromkeys(keys(parts(module)), Began(model.wrapping, first, last))
    return found


@once_a_run
def _ahead(run: Interpreter, wrapping: Wrapping) -> list[Event]:
    """The events in the statement after which a model is sharded, or further up in its function."""
    found = []
    for event in run.events:
        nodes = ((event.node, event.source), *((c.node, c.source) for c in event.calls if c.node is not None))
        if any(_is_ahead(node, source, wrapping) for node, source in nodes):
            found.append(event)
    return found


def _is_ahead(node: ast.AST, source: Source, wrapping: Wrapping) -> bool:
    """Whether a node is in the statement after which a model is sharded, or further up in its function."""
    end = wrapping.statement.end_lineno or wrapping.statement.lineno
    if source is not wrapping.source or getattr(node, "lineno", end + 1) > end:
        return False
    return source.home(node) is source.home(wrapping.statement)


@once_a_run
def _of_kinds(run: Interpreter, kinds: tuple[str, ...]) -> list[Event]:
    """The events of several kinds, in order."""
    return sorted((e for kind in kinds for e in run.of(kind)), key=lambda e: e.order)


def _first(module: Object, run: Interpreter) -> Event | None:
    members = keys(parts(module))
    kinds = ("forward", "model_method", "optimizer", *KEEPING)
    made = min((e.order for e in _named(module, run)), default=0)
    for event in _of_kinds(run, kinds):
        if event.kind != "optimizer" and event.order < made:
            continue  # its constructor counts parameters, or tries its layers out
        if event.kind == "forward" and members & keys(unwrapped(event.value)):
            return event
        if event.kind == "model_method" and _holds(event.value, module) and runs_layers(module, _method(event)):
            return event
        if event.kind in KEEPING and _keeps_aside(event, members):
            return event
        if event.kind == "optimizer":
            for optimizer in event.value.objects("optimizer"):
                if any(each.key in members or module.key in keys(parts(each)) for each in optimized_by(optimizer)):
                    return event
    return None


def _keeps_aside(event: Event, members: Keys) -> bool:
    """Whether an object that is no part of a model keeps its parameters, or copies of them: a running average, which
    meets those of the model later on."""
    owner = event.function.owner if event.function is not None else None
    if not isinstance(owner, Object) or owner.key in members or "optimizer" in owner.roles:
        return False
    if event.kind == "model_state_dict":
        return bool(members & keys(unwrapped(event.value))) and not _is_saved(event)
    return not members.isdisjoint(keys(whose_parameters(event.value)))


HOLDING = {"torch.nn.ModuleList": "list", "torch.nn.ModuleDict": "dict"}


def _place(module: Object, run: Interpreter, before: int | None = None) -> Wrapping | None:
    """As late as possible before the first use: what is loaded, initialised or frozen by then is whole."""
    use = _first(module, run)
    first = before if before is not None else use.order if use is not None else len(run.events)
    use = use or next((e for e in run.events if e.order == before), None)
    chosen, _ = _complete(module, run, first, use)
    if chosen is not None:
        found: Wrapping | None = _ahead_of_parameters(at(chosen, use), chosen, run)
    else:
        found = _in_list(module, run, use, first)
    if found is None or chosen is None and not found.each:
        return found
    block = found.source.block(found.statement)
    target = ast.dump(_loaded(found.target))
    stop = {run.events[first].node} if first < len(run.events) else set()
    statement = found.statement
    counted: list[tuple[ast.stmt, str]] = []
    for later in block[block.index(found.statement) + 1 :]:
        if first < len(run.events) and (later in stop or within(run.events[first], frozenset([later]))):
            break
        if _keeps_parameters(later, run):
            if not isinstance(later, ast.Assign) or not isinstance(later.targets[0], ast.Name):
                break
            counted.append((statement, later.targets[0].id))
        if isinstance(later, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return)):
            continue
        if any(isinstance(n, (ast.Name, ast.Attribute)) and ast.dump(_loaded(n)) == target for n in ast.walk(later)):
            statement = later
    earlier = next((place for place, name in counted if _is_read_after(name, statement, found.source)), statement)
    return replace(found, statement=earlier, inside=None, each=found.each or held_by(module))


def held_by(module: Object) -> str:
    """How a module that is never called itself holds those that are: `nn.ModuleList`, `nn.ModuleDict`."""
    return HOLDING.get(module.name, "") if module.cls is None else ""


def called_by_themselves(model: Model) -> list[Object]:
    """The modules of a model that are sharded as such: itself, or the members of a list that is never called."""
    module = model.object
    members = [each for each in parts(module) if held_by(module) and _is_member(each, module)]
    return [module, *model.alternatives, *members]


def _is_member(module: Object, holder: Object) -> bool:
    """Whether a list of modules holds a module itself, and not a part of it."""
    inside = [each for each in parts(holder) if each is not holder]
    return module in inside and not any(module in parts(each) for each in inside if each is not module)


def _in_list(module: Object, run: Interpreter, use: Event | None, first: int) -> Wrapping | None:
    """A place for a model that has no name of its own: below a list of models, or in the loop that fills it and makes
    an optimizer for each, `nets.append(Net())`, `optimizers.append(SGD(nets[-1].parameters()))`."""
    for event in (e for e in run.of("bind") if e.order < first):
        holders = [t for t in unwrapped(event.value) if isinstance(t, Object) and held_by(t)]
        if any(_is_member(module, each) for each in holders):
            return replace(at(event, use), inside=None, each=held_by(holders[0]))
    found = in_list(module, run, history_of(run), use, first)
    if found is None or not found.each:
        return found
    source, statement = found.source, found.statement
    whole = isinstance(statement, ast.Assign | ast.AnnAssign) and not isinstance(statement.value, ast.BinOp)
    if whole or not any(isinstance(each, (ast.For, ast.While)) for each in source.ancestors(statement)):
        return found
    block = source.block(statement)
    for later in (node for each in block[block.index(statement) + 1 :] for node in ast.walk(each)):
        if isinstance(later, ast.Subscript) and ast.dump(_loaded(later.value)) == ast.dump(_loaded(found.target)):
            if isinstance(later.ctx, ast.Load) and _holds(run.values.get(later, NOTHING), module):
                return replace(found, target=later, each="")
    return None


def _ahead_of_parameters(place: Wrapping, made: Event, run: Interpreter) -> Wrapping:
    """A place behind the conditions that a model is made under, or else in there, where its parameters are put into a
    list before that: `if use_pose: net = PoseNet()`, `params += list(net.parameters())`"""
    statement = place.source.statement(made.node)
    if statement is place.statement or place.statement not in place.source.ancestors(statement):
        return place
    while statement is not place.statement:
        block = place.source.block(statement)
        if any(_keeps_parameters(each, run) for each in block[block.index(statement) + 1 :]):
            return replace(place, statement=statement, inside=None)
        statement = next(a for a in place.source.ancestors(statement) if isinstance(a, ast.stmt))
    return place


def _complete(module: Object, run: Interpreter, first: int, use: Event | None) -> tuple[Event | None, bool]:
    """The last statement that binds a module before its first use, and whether others bind it that run in place of the
    use: `if path: net = load(net)`, `else: fit(net)`."""
    bound = _bound(module, run, first, ("bind", "bind_part"))
    bound = bound or _bound(module, run, first, ("alias", "alias_part"))  # it has no name where it is made
    always = [e for e in bound if e is bound[0] or not is_instead(e, use)]
    always = list(_until_listed(always, module, use, run))
    return (always[-1] if always else None), len(always) < len(bound)


def _until_listed(bound: list[Event], module: Object, use: Event | None, run: Interpreter) -> Iterator[Event]:
    """The statements that bind a module, but for those behind one that puts its parameters into the list which an
    optimizer is given: `params.append(p)`, `net = net.to(device)`, `SGD(params)`"""
    made = bound[0] if bound else None
    if made is None or use is None or use.kind != "optimizer" or _asks_itself(use.node, module, run):
        yield from bound
        return
    end = getattr(made.node, "end_lineno", 0)
    listed = (n for n in ast.walk(made.source.home(made.node)) if isinstance(n, ast.expr) and n.lineno > end)
    lines = [n.lineno for n in listed if _is_put_into_list(n, made.source, module, run)]
    for each in bound:
        if (
            each is made
            or each.source is not made.source
            or getattr(each.node, "lineno", 0) < min(lines, default=1 << 30)
        ):
            yield each


def _asks_itself(call: ast.AST, module: Object, run: Interpreter) -> bool:
    """Whether parameters of a module are taken where the optimizer is made."""
    asked = (n.func.value for n in ast.walk(call) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return any(_holds(run.values.get(each, NOTHING), module) for each in asked)


def _is_put_into_list(node: ast.expr, source: Source, module: Object, run: Interpreter) -> bool:
    """Whether an expression is what a list or dict gets of the parameters of a module, or is such a list."""
    value = run.values.get(node, NOTHING)
    if module.key not in keys(whose_parameters(value)):
        return False
    parent = source.parents.get(node)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr in GROWS:
        return node in parent.args
    made = any(isinstance(t, (Items, Table)) for t in value.things)
    return made and isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and parent.value is node


def _bound(module: Object, run: Interpreter, first: int, kinds: Iterable[str]) -> list[Event]:
    """Where a module is given a name before its first use, in this order."""
    events = (e for kind in kinds for e in _holding(run, kind).get(module.key, ()))
    return sorted((e for e in events if e.order < first and not e.inside_forward), key=lambda e: e.order)


def _is_read_after(name: str, statement: ast.stmt, source: Source) -> bool:
    """Whether a variable is read elsewhere than ahead of a statement, where its parameters are counted: once the model
    is sharded, it holds others."""
    last = statement.end_lineno or statement.lineno
    reads = (n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == name)
    reads = (n for n in reads if isinstance(n.ctx, ast.Load))
    return any(n.lineno > last or source.function(n) is not source.function(statement) for n in reads)


def _keeps_parameters(statement: ast.stmt, run: Interpreter) -> bool:
    """Whether parameters are put into a variable or list, from where an optimizer may take them: sharding replaces
    them."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
            kept: ast.expr | None = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS:
            kept = node.args[-1] if node.args else None
        else:
            continue
        if kept is not None and any(whose_parameters(run.values.get(kept, NOTHING))):
            return True
    return False


def _loaded(node: ast.expr) -> ast.expr:
    """A name or attribute as it is written where it is read."""
    match node:
        case ast.Name(id=name):
            return ast.Name(name, ast.Load())
        case ast.Attribute(value=value, attr=attr):
            return ast.Attribute(_loaded(value), attr, ast.Load())
    return node


# -------------------------------------------------------------------- units


def units(module: Object, run: Interpreter) -> Iterator[str]:
    """The repeated blocks of a model, as attributes of it; lists of blocks begin with a ``*``, lists of lists of them
    with two."""
    repeated = list(dict.fromkeys(_lists(module, "", run, 4))) or list(_alike(module, run))
    apart = [path for path in _apart(module, run) if path not in repeated]
    # what is sharded apart comes before what is around it
    inner = [path for path in apart if any(path.startswith(f"{each}.") for each in repeated)]
    yield from (
        *inner,
        *repeated,
        *sorted((path for path in apart if path not in inner), key=lambda each: -each.count(".")),
    )


def _apart(module: Object, run: Interpreter) -> Iterator[str]:
    """Parts that the script also calls on their own: `model.encoder(x)`. They gather their parameters themselves."""
    held = keys(parts(module))
    called: dict[Key, bool] = {}
    for event in run.of("forward"):
        for thing in () if event.inside_forward else unwrapped(event.value):
            inside = (call.function.owner for call in event.calls)
            if isinstance(thing, Object) and thing.key in held - {module.key}:
                if not any(isinstance(each, Object) and each.key in held for each in inside):
                    called[thing.key] = called.get(thing.key, True) and runs_after(event, module, run)
    paths = dict(_paths(module, 3)) if called else {}
    for path, made in paths.items():
        wanted = all(called.get(each.key) and _is_called(each, run) for each in made)
        if wanted and not any(_overlap(one, other) for one in made for some in paths.values() for other in some):
            yield path


def _overlap(one: Object, other: Object) -> bool:
    """Whether two parts share layers, and neither is a part of the other: these would belong to both."""
    held, theirs = keys(parts(one)), keys(parts(other))
    return bool(held & theirs) and other.key not in held and one.key not in theirs


def _paths(module: Object, depth: int, path: str = "") -> Iterator[tuple[str, list[Object]]]:
    """The parts that attributes name, and what may stand there: `encoder`, `encoder.embedding`"""
    for name, value in module.attributes.items() if module.cls is not None and depth else ():
        made = [t for t in value.things if isinstance(t, Object) and t.roles & {"module", "batch_norm"}]
        if made and name.isidentifier() and len(made) == len(value.things):
            inner = f"{path}.{name}" if path else name
            yield inner, made
            for each in made:
                yield from _paths(each, depth - 1, inner)


def runs_after(event: Event, root: Object, run: Interpreter) -> bool:
    """Whether the model itself runs before a part of it, or never: FSDP takes what runs first for the root."""
    runs = [e.order for e in run.of("forward") if _holds(e.value, root)]
    methods = (e for e in run.of("model_method") if _holds(e.value, root) and not e.inside_forward)
    runs += [e.order for e in methods if runs_layers(root, _method(e))]
    return not runs or min(runs) < event.order


def _lists(module: Object, path: str, run: Interpreter, depth: int) -> Iterator[str]:
    """Lists of like blocks, the outermost ones."""
    name = module.name if module.cls is None else ""
    known = run.catalog.blocks(name, (module.argument("model_name", 0) or NOTHING).const) if name else ()
    if known:
        yield from (_below(path, each) for each in known)
        return
    if name in CONTAINERS:
        elements = _elements(module)
        end = ".values()" if name.endswith("ModuleDict") else ""
        lists = all(each.cls is None and each.name == "torch.nn.ModuleList" for each in elements)
        if _is_blocks(elements, run):
            yield f"*{path}{end}"
        elif lists and _is_blocks([block for each in elements for block in _elements(each)], run):
            yield f"**{path}{end}"
        else:
            yield from _named_lists(module.layers, path, run, depth)
    elif module.cls is not None:
        yield from _named_lists(module.attributes, path, run, depth)


def _named_lists(held: Mapping[str, Value], path: str, run: Interpreter, depth: int) -> Iterator[str]:
    """Lists of like blocks in the attributes of a module, or in a dict of modules: `self.transformer.h`"""
    for attribute, value in held.items() if depth else ():
        if not attribute.isidentifier():
            continue
        inner = f"{path}.{attribute}" if path else attribute
        found = [list(_lists(thing, inner, run, depth - 1)) for thing in _modules(value)]
        yield from (unit for unit in found[0] if all(unit in other for other in found)) if found else ()


def blocks_of(model: Model, unit: str) -> list[Object]:
    """The modules that a unit names, each of which is sharded apart from the rest of the model."""
    held: list[Object] = [model.object]
    for name in unit.lstrip("*").removesuffix(".values()").split("."):
        name = name.partition("[")[0]
        named = (each.layers.get(name, each.attributes.get(name, NOTHING)) for each in held)
        held = [m for value in named for m in _modules(value)] if name else held
    for _ in range(unit.count("*")):
        held = [block for each in held for block in _elements(each)]
    return held


def unit_parts(model: Model) -> Keys:
    """The keys of all modules that are sharded apart from the rest of a model, with the block that they are in."""
    return keys(part for unit in model.units for block in blocks_of(model, unit) for part in parts(block))


def _is_tied(model: Model, unit: str, run: Interpreter) -> bool:
    """Whether a block shares a parameter with what lies outside of it, so that one shard of it would belong to two:
    `net[-1].weight = net[0].weight`"""
    ties = [(e.value, e.detail) for e in run.of("replace_parameter")]
    meeting = [(keys(unwrapped(taker)), keys(map(bare, whose_parameters(given)))) for taker, given in ties]
    inside = [keys(parts(block)) for block in blocks_of(model, unit)] if ties else []
    # one expression may make several: what it has in common with itself lies in two of them
    return any((a | b) & own and ((a | b) - own or a & b) for a, b in meeting if a and b for own in inside)


def _below(path: str, unit: str) -> str:
    """A unit of a part as one of the model."""
    star = "*" * unit.count("*")
    return f"{star}{path}.{unit.lstrip('*')}" if path else unit


def _alike(module: Object, run: Interpreter) -> Iterator[str]:
    """Attributes that hold blocks of one class, as in `self.down1 = Down(); self.down2 = Down()`."""
    names: dict[object, list[str]] = {}
    for attribute, value in module.attributes.items() if module.cls is not None else ():
        for thing in _modules(value):
            if thing.cls is not None and _holds_layers(thing) and _is_called(thing, run):
                names.setdefault(thing.cls, []).append(attribute)
    yield from (name for group in names.values() if len(group) > 1 for name in group)


def _modules(value: Value) -> list[Object]:
    return [t for t in value.things if isinstance(t, Object) and "module" in t.roles and "loss" not in t.roles]


def _elements(container: Object) -> list[Object]:
    """The modules in a list, in any order."""
    found: list[Object] = []
    pending = list(container.args)
    seen: set[int] = set()
    while pending:
        for thing in pending.pop().things:
            if isinstance(thing, Object) and "module" in thing.roles and thing not in found:
                found.append(thing)
            elif isinstance(thing, Items) and id(thing) not in seen:
                seen.add(id(thing))
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table) and id(thing) not in seen:
                seen.add(id(thing))
                pending += [*thing.entries.values(), thing.element]
    return found


def _is_blocks(elements: list[Object], run: Interpreter) -> bool:
    """Whether a list holds several blocks of one kind, each with layers in it, that are called one by one."""
    kinds: dict[object, int] = {}
    for each in elements:
        if not _is_called(each, run):
            return False
        if _holds_layers(each):
            kind = each.cls or each.name
            kinds[kind] = kinds.get(kind, 0) + (2 if _is_repeated(each) else 1)
    return any(count > 1 for count in kinds.values())


def _is_repeated(module: Object) -> bool:
    """Whether one expression makes several, in a loop or comprehension."""
    loops = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.For, ast.While)
    for ancestor in module.source.ancestors(module.node):
        if isinstance(ancestor, loops):
            return True
        if isinstance(ancestor, (ast.FunctionDef, ast.ClassDef)):
            return False
    return False


def _holds_layers(module: Object) -> bool:
    if module.cls is None:
        return module.name.endswith(("EncoderLayer", "DecoderLayer")) or (
            module.name in CONTAINERS and len(_elements(module)) > 1
        )
    return len(parts(module)) > 1


def _is_own(event: Event, module: Object) -> bool:
    """Whether something happens in a method of a module itself; each call of what makes it may make another object."""
    owner = event.function.owner if event.function is not None else None
    return isinstance(owner, Object) and owner.key == module.key


def _is_called(module: Object, run: Interpreter) -> bool:
    """Whether a block runs as a whole, by its forward alone, and leaves what it is given as it is."""
    if passes(run.runs.program).change_input(module.node) or _is_bypassed(module, run):
        return False
    if module.cls is None:
        return module.name not in UNCALLED
    runs = any(each.node in run.executed for each in module.functions("forward"))
    return runs and not any(
        e.kind == "model_method" and _holds(e.value, module) and not _is_own(e, module) for e in run.of("model_method")
    )


_LAYER_CALLS: WeakKeyDictionary[Interpreter, list[tuple[ast.ClassDef, Keys]]] = WeakKeyDictionary()


def _is_bypassed(block: Object, run: Interpreter) -> bool:
    """Whether methods of other modules call layers of a block, past what gathers its parameters: `self.down.conv(x)`"""
    if run not in _LAYER_CALLS:
        _LAYER_CALLS[run] = list(_layer_calls(run))
    inner = keys(parts(block)) - {block.key}
    homes = {cls.node for part in parts(block) if part.cls is not None for cls in part.cls.line()}
    return any(home not in homes and called & inner for home, called in _LAYER_CALLS[run])


def _layer_calls(run: Interpreter) -> Iterator[tuple[ast.ClassDef, Keys]]:
    """The classes whose methods call modules, each with what is called there."""
    for node in run.values:
        if isinstance(node, ast.Call):
            called = keys(t for t in unwrapped(run.values.get(node.func, NOTHING)) if _is_layer(t))
            function = run.sources[node].function(node) if called else None
            home = run.sources[node].parents.get(function) if function is not None else None
            if function is not None and function.name != "__init__" and isinstance(home, ast.ClassDef):
                yield home, called


def _is_layer(thing: Thing) -> bool:
    return isinstance(thing, Object) and bool(thing.roles & {"module", "batch_norm"}) and "loss" not in thing.roles


def rank_check(event: Event, run: Interpreter) -> ast.If | None:
    """The outermost condition on the rank around something that happens on one rank, if there is one in sight."""
    if any(call.node is not None and _checks_rank(call.source, call.node, run) for call in event.calls):
        return None  # what is around this call is run on one rank already
    found = _checks_rank(event.source, event.node, run)
    outer = event.source.parents.get(found) if found is not None else None
    if isinstance(outer, ast.If) and outer.orelse == [found]:
        return None  # an elif
    return found


def _checks_rank(source: Source, node: ast.AST, run: Interpreter) -> ast.If | None:
    """The outermost condition on the rank around a node, in its function."""
    found = None
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, ast.If) and run.goes_by_rank(ancestor.test):
            found = ancestor
    return found


# -------------------------------------------------------------------- methods


def _methods(module: Object, run: Interpreter) -> Iterator[str]:
    """Methods that run layers of the model and are called besides its forward."""
    seen: set[str] = set()
    for event in run.of("model_method"):
        if event.inside_forward or not _holds(event.value, module):
            continue
        if _is_own(event, module):
            continue  # called by another method of the model
        name = _method(event)
        runs = name and runs_layers(module, name) and not _only_reads(module, name)
        runs = runs and not _only_lists(module, name, run)
        if name and name not in seen and (runs or _makes_alike(module, name)):
            seen.add(name)
            yield name


def _offered(module: Object, run: Interpreter) -> Iterator[str]:
    """Methods that run layers, of a model that a library is given."""
    if module.cls is not None and _is_handed_over(module, run):
        for node in (each for cls in module.cls.line() for each in cls.node.body):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != "forward":
                if runs_layers(module, node.name) and not _only_lists(module, node.name, run):
                    yield node.name


def _is_handed_over(module: Object, run: Interpreter) -> bool:
    """Whether a library is given the model, which may call any method of it: `plot_regions(x, y, clf=model)`"""
    for call, value in ((n, v) for n, v in run.values.items() if isinstance(n, ast.Call)):
        names = [t.name for t in run.values.get(call.func, NOTHING).things if isinstance(t, External)]
        if any(name.partition(".")[0] not in ("torch", "builtins", "copy") for name in names):
            given = (*call.args, *(k.value for k in call.keywords))
            if any(_holds(run.values.get(each, NOTHING), module) for each in given) and not _holds(value, module):
                return True
    return False


def _only_reads(module: Object, name: str) -> bool:
    """Whether a method is given nothing, and computes from parameters without running a layer."""
    found = module.cls.find(name) if module.cls is not None else None
    for thing in found[1].things if found is not None else ():
        node = thing.node if isinstance(thing, Function) else None
        if node is None or len(node.args.args) != 1 or node.args.vararg or node.args.kwonlyargs or node.args.kwarg:
            return False
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                things = module.attributes.get(each.attr, NOTHING).things
                if each.attr == "forward" or not any(isinstance(t, Object) and "parameter" in t.roles for t in things):
                    return False
    return True


def _makes_alike(module: Object, name: str) -> bool:
    """Whether a method makes tensors after the type of a parameter: `next(self.parameters()).new_zeros(n, 4)`."""
    nodes = [each.node for each in module.cls.functions(name)] if module.cls is not None else []
    names = {n.attr for node in nodes for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return any(each.startswith("new_") for each in names) and bool(names & {"parameters", "weight"})


def _method(event: Event) -> str:
    """The name of the method that an event calls."""
    return (
        event.node.func.attr if isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute) else ""
    )


def _only_lists(module: Object, name: str, run: Interpreter) -> bool:
    """Whether a method enumerates parameters, as an optimizer asks for, and runs no layer: `yield p`"""
    nodes = {each.node for each in module.cls.functions(name)} if module.cls is not None else set()
    reads = (n for node in nodes for n in ast.walk(node) if isinstance(n, ast.Attribute))
    if not any(n.attr in ("parameters", "named_parameters") for n in reads):
        return False
    return not any(call.function.node in nodes for event in run.of("forward") for call in event.calls)


def runs_layers(module: Object, name: str, depth: int = 4) -> bool:
    """Whether a method calls layers of the model itself, rather than the model or nothing of it."""
    found = module.cls.find(name) if module.cls is not None else None
    if found is None or depth == 0:
        return False
    for thing in found[1].things:
        node = thing.node if isinstance(thing, Function) else None
        for each in ast.walk(node) if node is not None else ():
            if not isinstance(each, ast.Attribute) or not isinstance(each.value, ast.Name) or each.value.id != "self":
                continue
            if reads_layers(each, thing, module):
                return True
            if each.attr == "forward" or (each.attr != name and runs_layers(module, each.attr, depth - 1)):
                return True
    return False


def reads_layers(node: ast.Attribute, thing: Thing, module: Object) -> bool:
    """Whether `self.name` in a method of a module is one of its layers or parameters, and more than asked about."""
    things = module.attributes.get(node.attr, NOTHING).things
    held = any(isinstance(t, Object) and t.roles & {"module", "parameter", "batch_norm"} for t in things)
    held = held and not any(isinstance(t, Object) and "loss" in t.roles for t in things)
    return held and not _only_configures(node, thing)


def _only_configures(node: ast.Attribute, thing: Thing) -> bool:
    """`self.encoder.parameters()`, `self.fc.weight.numel()`, `self.net.eval()`"""
    assert isinstance(thing, Function)
    parent = thing.source.parents.get(node)
    while isinstance(parent, ast.Attribute) and parent.attr not in CONFIGURING:
        parent = thing.source.parents.get(parent)  # self.model.classifier.parameters()
    return isinstance(parent, ast.Attribute)
