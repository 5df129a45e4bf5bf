"""Which modules train, and how each becomes a distributed one."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

from autodist.interpreter import GROWS, Event, Interpreter
from autodist.models.behind import differentiated
from autodist.models.history import History, grows, history_of, learning, place_of
from autodist.models.moves import TO_DEVICE, TO_TYPE, moved_before_use
from autodist.models.nameless import in_holder
from autodist.models.outputs import gives_objects, gives_parameters
from autodist.models.parts import optimized_modules, parts, parts_of, unwrapped
from autodist.models.passes import changes, learns_by_gradients_alone, parts_by_turns, pattern_of
from autodist.models.places import after_conditions, is_forgotten, is_main_guard
from autodist.models.wrapping import wrapping_of
from autodist.script import Model, Site, Wrapping
from autodist.solve.learned import learned
from autodist.source import Source, all_of, last_name, shortened, spelled, told_once, walk
from autodist.values import (
    NOTHING,
    External,
    Items,
    Object,
    Thing,
    Wrapped,
)


def trained_models(run: Interpreter) -> list[Model]:
    """The outermost modules that gradients flow through and an optimizer steps, in the order of their first use."""
    history = history_of(run)
    optimized = optimized_modules(run)
    used: dict[Object, None] = {}
    for event in run.of("backward"):
        used |= dict.fromkeys(sorted(differentiated(run, event), key=place_of))
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
        owner = next((o for o in owners.get(module, []) if o is not module and o not in used), None)
        if owner is not None:
            roots.pop(module, None)
            roots.setdefault(owner)
            passed_by[owner] = "its methods are called instead of itself, so that gradients flow past forward()"
    for module in roots:
        if any(_calls_itself(event, module) for event in learning(module, history)):
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
    return _complete(_merged([_model(module, run, history, passed_by.get(module)) for module in roots]), run, history)


def _complete(models: list[Model], run: Interpreter, history: History) -> list[Model]:
    """Lists of models are wrapped as a whole, where all in them train alike; else those that do, each by its key."""
    lists = {event.node: unwrapped(event.value) for event in run.of("bind_each")}
    result: list[Model] = []
    for model in models:
        if model.wrapping is not None and model.wrapping.each:
            held = next((held for node, held in lists.items() if _binds(node, model.wrapping)), set())
            held = held or _grown_with(model.wrapping, run)
            ours = {each.key for each in (model.object, *model.alternatives)}
            known = all(isinstance(thing, Object) and thing.key in ours for thing in held)
            if not held or not known:
                modules = [model.object, *model.alternatives]
                places = [in_holder(module, run, history) for module in modules]
                if None not in places:
                    result += _each_by_its_name(model, modules, [place.target for place in places if place is not None])
                    continue
                model = replace(model, wrapping=None)
        result.append(model)
    return result


def _each_by_its_name(model: Model, modules: list[Object], names: list[ast.expr]) -> Iterator[Model]:
    """Where the list as a whole would be wrapped, below the loop that moves what is in it."""
    assert model.wrapping is not None
    for module, name in zip(modules, names, strict=True):
        yield replace(model, object=module, wrapping=replace(model.wrapping, target=name, each=""), alternatives=())


def _grown_with(wrapping: Wrapping, run: Interpreter) -> set[Thing]:
    """The models that come into a list one by one: all that is known to be in it."""
    target = run.values.get(wrapping.target, NOTHING)
    inside = [part for thing in target.things if isinstance(thing, Items) for part in (*thing.parts, thing.element)]
    return {thing for part in inside for thing in unwrapped(part)}


def _binds(node: ast.AST, wrapping: Wrapping) -> bool:
    """Whether an assignment binds the name of what is wrapped."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(target is wrapping.target for target in targets)


UNSEEN = "cannot see"


def unseen_model(optimizer: Object, run: Interpreter) -> tuple[Site, str] | None:
    """Where a model is made of which an optimizer is given the parameters, if nothing is known of it."""
    homes = [optimizer.source, *run.project.sources]
    for source in dict.fromkeys(homes):
        for node in walk(source.tree) if source is optimizer.source or source is run.project.entry else ():
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("parameters", "named_parameters") or node not in run.values:
                continue
            model = node.func.value
            if not run.values.get(model, NOTHING).things and isinstance(model, (ast.Name, ast.Attribute)):
                return _unseen(model, source, run)
    return None


def unseen_beside(optimizer: Object, run: Interpreter) -> tuple[Site, str] | None:
    """The same of one among several models whose parameters an optimizer is given: `[*net.parameters(),
    *head.parameters()]`."""
    source = optimizer.source
    pending: list[ast.expr] = [*optimizer.node.args, *(each.value for each in optimizer.node.keywords)]
    seen: set[str] = set()
    while pending:
        for node in walk(pending.pop()):
            given = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if given is not None and given.attr in ("parameters", "named_parameters") and node in run.values:
                model = given.value
                unknown = run.values.get(model, NOTHING) == NOTHING and not _is_made_elsewhere(model, source, run)
                if unknown and isinstance(model, (ast.Name, ast.Attribute)):
                    return _unseen(model, source, run)
            elif isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) not in seen:
                seen.add(ast.unparse(node))
                pending += _put_into(node, optimizer.node, source)
    return None


def _is_made_elsewhere(model: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a name stands for a model that is followed where it is not read from a file, `net = checkpoint["net"]`:
    they are wrapped at one place."""
    if not isinstance(model, ast.Name):
        return False
    made = False
    for value in _bound_to(model.id, source.home(model)):
        if isinstance(value, ast.Subscript) and run.values.get(value, NOTHING) == NOTHING:
            continue
        if not any(isinstance(thing, Object) for thing in unwrapped(run.values.get(value, NOTHING))):
            return False
        made = True
    return made


def _bound_to(name: str, home: ast.AST) -> Iterator[ast.expr]:
    """What a function assigns to a name, by itself or in a row of names."""
    for each in (node for node in walk(home) if isinstance(node, (ast.Assign, ast.AugAssign))):
        for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
            if isinstance(target, ast.Name) and target.id == name:
                yield each.value
            elif isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                pairs = zip(target.elts, each.value.elts, strict=False)
                yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)


def _put_into(name: ast.expr, near: ast.AST, source: Source) -> Iterator[ast.expr]:
    """What a name is bound to, or what is put into the list that it names, in the function of ``near``."""
    home = source.home(near) if isinstance(name, ast.Name) else source.tree
    yield from _put_by_name(home).get(spelled(name), ())


@told_once
def _put_by_name(home: ast.AST) -> dict[str, list[ast.expr]]:
    """What each name of a function is bound to, and what is put into the lists there."""
    found: dict[str, list[ast.expr]] = {}
    for each in all_of(home, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Call):
        if isinstance(each, ast.Assign):
            for name in {spelled(target) for target in each.targets}:
                found.setdefault(name, []).append(each.value)
        elif _adds(each):
            found.setdefault(spelled(each.target), []).append(each.value)  # type: ignore[arg-type]
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            if each.func.attr in {*GROWS, "add_param_group"}:
                found.setdefault(spelled(each.func.value), []).extend(each.args)
    return found


def _adds(node: ast.AST) -> TypeGuard[ast.AugAssign | ast.AnnAssign]:
    return isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None


def _unseen(model: ast.Name | ast.Attribute, at: Source, run: Interpreter) -> tuple[Site, str]:
    """Where a model is made of whose class nothing is known, as its parameters are asked for in a file."""
    places = dict.fromkeys([at, *run.project.sources])
    found = ((each, _made_of(model, each)) for each in places)
    source, made = next(((each, made) for each, made in found if made is not None), (at, None))
    if made is None and isinstance(model, ast.Attribute) and isinstance(model.value, ast.Name):
        made = _made_of(model.value, source)  # `benchmark.model` of `benchmark = get_benchmark(name)`
    origin = f", made by {shortened(source.code(made.value))}" if made is not None else ""
    advice = _lost_star(made.value, run) if made is not None else None
    advice = advice or "import the class and name it"
    reason = f"{UNSEEN} which class {ast.unparse(model)} is of{origin}: {advice}"
    return Site(source, made or model), reason


def _lost_star(made: ast.expr, run: Interpreter) -> str | None:
    """The `from module import *` without a module at hand that a function which is defined nowhere may come from."""
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name) or made.func.id in dir(builtins):
        return None
    names = {t.name for t in run.values.get(made.func, NOTHING).things if isinstance(t, External)}
    if names != {f"builtins.{made.func.id}"}:
        return None
    for source in run.project.sources:
        for node in walk(source.tree):
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
            for each in walk(source.tree)
            if isinstance(each, ast.Assign)
            and any(ast.unparse(target) == bound for target in each.targets)
            and isinstance(each.value, ast.Call)
            and not any(isinstance(n, again) and ast.unparse(n) == bound for n in walk(each.value))
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
                may_be_frozen=other.may_be_frozen or model.may_be_frozen,
                dropped=tuple(dict.fromkeys((*other.dropped, *model.dropped))),
                pinned=tuple(dict.fromkeys((*other.pinned, *model.pinned))),
                partial=tuple(dict.fromkeys((*other.partial, *model.partial))),
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
        bypassed=model.bypassed or next((each.bypassed for each in alike if each.bypassed), None),
        batch_norm=model.batch_norm or any(each.batch_norm for each in alike),
        sometimes_unused=model.sometimes_unused or any(each.sometimes_unused for each in alike),
    )


def _where_wrapped(model: Model) -> tuple[ast.AST, str] | None:
    if model.wrapping is None:
        return None
    place: ast.AST = model.wrapping.target if model.wrapping.unnamed else model.wrapping.statement
    return place, ast.dump(model.wrapping.target)


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
        bypass = pattern_of(module, history) or changes(module, history) or parts_by_turns(module, run, history)
        bypass = bypass or learns_by_gradients_alone(module, run, history)
    sometimes_unused = learned(run.runs.program).leaves(module.node)
    passes = learning(module, history)
    if bypass is None and sometimes_unused and any(_learns_alone(part, history) for part in members if part != module):
        bypass = "a part of it is called on its own, which it would take for one that is not used"
    if bypass is None and sometimes_unused and not wrapped and gives_objects(passes, run):
        bypass = "it gives its outputs in an object, in which the search for unused parameters finds no tensors"
    if bypass is None and sometimes_unused and not wrapped and gives_parameters(passes, run):
        bypass = "it gives back parameters themselves, which it would take for unused ones and wait for nevertheless"
    uses = history.forwards.get(module, [])
    lasting = {e.node for e in history.wraps if not is_forgotten(e, uses)}
    dropped = tuple(s for s in parallel if _is_bound(s) and (_is_conditional(s) or s.node not in lasting))
    # what is wrapped in both branches has the keys of a wrapper in its checkpoints, and keeps them
    dropped = tuple(site for site in dropped if not any(_alternatives(site, other) for other in parallel))
    parallel = tuple(site for site in parallel if site not in dropped)
    whole = {e.node for e in wraps if module in unwrapped(e.value)}  # not `model.encoder = nn.DataParallel(...)`
    ours = tuple(site for site in dropped if site.node in whole & lasting)
    of_parts = tuple(site for site in parallel if _is_around_part(site, module, wraps))
    parallel = tuple(site for site in parallel if site not in of_parts)
    partial = tuple(site for site in of_parts if any(_alternatives(site, other) for other in parallel))
    wrapping = None if wrapped else _place_of(module, ours, foreign, run, history)
    if bypass is None and not parallel and not dropped and wrapping is not None and _is_saved_within(wrapping, run):
        bypass = "it is a part of a module whose checkpoints would have other keys"
    early = wrapping is not None and wrapping.early if not parallel else _grows_wrapped(module, wraps, history)
    if bypass is None and early:
        bypass = "it is given further layers between the place where it is made and its first step"
    may_be_frozen = learned(run.runs.program).may_be_frozen(module.node)
    if may_be_frozen and wrapping is not None and wrapping.unnamed:
        wrapping = None  # it would have to be asked for what trains in it
    return Model(
        module,
        wrapping,
        wrapped,
        None if wrapped else bypass,
        run.normalises(module),
        sometimes_unused,
        parallel,
        dropped,
        tuple(site for site in of_parts if site not in partial),
        partial,
        tuple(site for site in foreign if _in_place((site,)) is not None),
        sharded=shards,
        moved_later=tuple(_moved_later(module, wraps, run)),
        may_be_frozen=bypass is None and wrapping is not None and not wrapping.each and may_be_frozen,
    )


def _grows_wrapped(module: Object, wraps: list[Event], history: History) -> bool:
    """`model = nn.DataParallel(model)`, and then `model.module.fc = nn.Linear(8, 4)`"""
    around = [event.order for event in wraps if module in unwrapped(event.value)]
    return bool(around) and any(event.order > around[0] for event in grows(module, history))


def _moved_later(module: Object, wraps: list[Event], run: Interpreter) -> Iterator[Site]:
    """`model = nn.DataParallel(model)`, and then `model.cuda()` or `model.half()`. Where it has learned, it was on its
    device: it was on the CPU meanwhile, to be saved."""
    first = next((e.order for e in wraps if module in unwrapped(e.value)), None)
    used = next((e.order for e in run.of("forward") if e.grad and module in unwrapped(e.value)), len(run.events))
    for event in run.of("move"):
        if first is None or not first <= event.order < used or not isinstance(event.node, ast.Call):
            continue
        function = event.node.func
        if isinstance(function, ast.Attribute) and any(function.value is wrap.node for wrap in wraps):
            continue  # `nn.DataParallel(model).cuda()`
        around = any(isinstance(t, Wrapped) and t.module is module for t in event.value.things)
        if around and isinstance(function, ast.Attribute) and function.attr in (*TO_DEVICE, *TO_TYPE):
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


def _is_saved_within(wrapping: Wrapping, run: Interpreter) -> bool:
    """Whether the wrapper would be a part of a module that is saved or restored as a whole: `self.critic` of a GAN."""
    states = (*run.of("model_state_dict"), *run.of("model_load_state_dict"))
    saved = {part for event in states for thing in unwrapped(event.value) for part in parts_of(thing)}
    target = wrapping.target
    holders = unwrapped(run.values.get(target.value, NOTHING)) if isinstance(target, ast.Attribute) else set()
    return not saved.isdisjoint(holders)


def _learns_alone(part: Object, history: History) -> bool:
    """Whether a step goes backward through a part of a model that was called past the model's own forward pass."""
    return part in history.forwards and part in history.backwards


def _is_around_part(site: Site, module: Object, wraps: list[Event]) -> bool:
    """`model.features = nn.DataParallel(model.features)`: the rest of the model has no wrapper."""
    around = {thing for event in wraps if event.node is site.node for thing in unwrapped(event.value)}
    named = isinstance(site.node, ast.Call) and last_name(site.node.func) == "DataParallel"
    return named and not any(module in parts_of(thing) for thing in around)


def _is_conditional(site: Site) -> bool:
    """`if torch.cuda.device_count() > 1: model = nn.DataParallel(model)`, not `if True:`, nor what gives every model a
    wrapper, `if not isinstance(model, nn.DataParallel):`"""
    parent = site.source.parents.get(site.statement)
    if not isinstance(parent, ast.If) or is_main_guard(parent) or isinstance(parent.test, ast.Constant):
        return False
    return parent.orelse != [] or site.statement not in parent.body or not asks_for_wrapper(parent.test)


def asks_for_wrapper(test: ast.expr) -> bool:
    """`not isinstance(model, nn.DataParallel)`, `isinstance(model, nn.DataParallel) is False`"""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if isinstance(test, ast.Compare) and ast.unparse(test).endswith((" is False", " == False")):
        asked = test.left
    named = isinstance(asked, ast.Call) and last_name(asked.func) == "isinstance" and len(asked.args) == 2
    classes = asked.args[1] if isinstance(asked, ast.Call) and named else None
    listed = classes.elts if isinstance(classes, ast.Tuple) else [classes]
    return any(each is not None and last_name(each) == "DataParallel" for each in listed)


def _is_bound(site: Site) -> bool:
    """`model = nn.DataParallel(model).cuda()`"""
    return isinstance(site.statement, ast.Assign) and site.statement.value is _moved(site)


def _alternatives(site: Site, other: Site) -> bool:
    """Whether two wrappers stand in the two branches of one condition."""
    parents = (site.source.parents.get(site.statement), other.source.parents.get(other.statement))
    return parents[0] is parents[1] and site.source.block(site.statement) is not other.source.block(other.statement)


def _place_of(
    module: Object, dropped: tuple[Site, ...], foreign: tuple[Site, ...], run: Interpreter, history: History
) -> Wrapping | None:
    """In the place of another wrapper, unless the model comes to its device after that."""
    found = _in_place(foreign)
    if found is not None:
        return found
    found = _after_dropped(dropped)
    if found is None:
        return wrapping_of(module, run, history)
    since = max(min(e.order for e in history.wraps if e.node is site.node) for site in dropped)
    first = min((event.order for event in history.forwards.get(module, [])), default=len(run.events))
    there = {site.statement for site in dropped}  # `model = nn.DataParallel(model).cuda()`
    moves = moved_before_use(module, since, first, run)
    if any(event.source.statement(event.node) not in there for event in moves):
        return wrapping_of(module, run, history)
    return found


def _after_dropped(dropped: tuple[Site, ...]) -> Wrapping | None:
    """Where the condition for a dropped wrapper ends."""
    for site in dropped:
        statement = site.statement
        assert isinstance(statement, ast.Assign)
        return Wrapping(site.source, after_conditions(site.source, statement, None), statement.targets[0], None)
    return None
