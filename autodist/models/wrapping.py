"""Where a module becomes a distributed one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.models.history import History, freezes, grows, history_of, learning
from autodist.models.moves import is_to_device
from autodist.models.parts import parts, unwrapped
from autodist.regions import stands_in, within
from autodist.script import Model, Wrapping
from autodist.source import Source, all_of, last_name, walk
from autodist.values import (
    Function,
    Object,
    Table,
    Value,
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def settled_at(module: Object, run: Interpreter) -> Wrapping | None:
    """Where a module that nothing wraps is complete."""
    return wrapping_of(module, run, history_of(run))


def wrapping_of(module: Object, run: Interpreter, history: History) -> Wrapping | None:
    """After the last statement that makes, moves or binds the model before its first use."""
    grown = max((event.order for event in grows(module, history)), default=-1)
    quiet = [e for e in run.of("forward") if not e.grad and not e.loops and module in unwrapped(e.value)]
    tried = [*(event for event in history.forwards.get(module, []) if _is_trial(event)), *quiet]
    places = history.places.get(module, [])
    held = (*history.lists.get(module, [])[:1], *history.held.get(module, [])[:1])
    made = sorted((*places[:1], *held), key=lambda event: event.order)
    made_in = {loop.node for event in made[:1] for loop in event.loops}
    tried += (e for e in _looked_through(module, run) if all(loop.node in made_in for loop in e.loops))
    uses = [event for event in history.forwards.get(module, []) if event not in tried] or run.of("backward")
    use = next((event for event in uses if event.order > grown), None)
    first = use.order if use is not None else len(run.events)
    chosen: Event | None = None
    alias: Event | None = None
    part: Event | None = None
    called: Wrapping | None = None
    for event in places:
        if event.order >= first:
            break
        if any(loop.node not in made_in for loop in event.loops if not isinstance(loop.node, ast.comprehension)):
            if event.kind == "move" and is_to_device(event, run):
                called = _after_rounds(event, places[0], module, run, use) or called
            continue  # a model is wrapped once, not in each round of a loop
        if event is not places[0] and (_sets_mode(event.node) or is_instead(event, use)):
            continue
        if event is not places[0] and (after := _after_holder(event, module, run, uses, use)) is not None:
            called = after
        elif event.kind == "alias_part":
            part = part or event  # `self.model, self.decay = model, decay`
        elif event.kind == "alias":
            alias = alias or event
        elif event.kind != "move" or _moves_by_name(event):
            if _lasts(event, use):
                chosen, called = event, None
            else:
                called = _after_call(event, module, run, use) or called
    placed = chosen or alias or part
    if called is not None:
        found = called
    elif placed is not None:
        found = _by_its_name(placed, at(placed, use), places, learning(module, history))
        found = _after_initialisation(found, use, run)
    else:
        return in_list(module, run, history, use, first) or in_holder(module, run, history, use)
    begun = placed.order if placed is not None and called is None else places[0].order
    grown_later = [event for event in grows(module, history) if begun < event.order < first]
    settling = (*freezes(module, history), *grown_later, *tried, *_moves_of_parts(module, run))
    found = _settled(found, [event for event in settling if begun < event.order < first], use)
    return replace(found, early=any(not _is_by_then(event, found) for event in grown_later))


def _settled(found: Wrapping, settling: Iterable[Event], use: Event | None) -> Wrapping:
    """Below the last of some events, in the function of a place or in what it calls: what is frozen by then, the
    wrapper leaves alone, and layers that are new, it knows."""
    source = found.source
    later = sorted(settling, key=lambda event: event.order, reverse=True)
    node = next((node for event in later if (node := _seen_from(event, found)) is not None), None)
    if node is None or source.statement(node).lineno <= found.statement.lineno:
        return found
    statement, around = source.statement(node), set(source.ancestors(found.statement))
    loops = [a for a in source.ancestors(statement) if isinstance(a, (ast.For, ast.While, ast.With))]
    loops = [each for each in loops if each not in around]
    statement = after_conditions(source, loops[-1] if loops else statement, use, found.target)
    if use is not None and within(use, frozenset([statement])):
        return found
    return replace(found, statement=statement, inside=None)


def _is_by_then(event: Event, found: Wrapping) -> bool:
    """Whether an event happens above the place of a wrapper, in the same function or in what it calls."""
    node = _seen_from(event, found)
    end = found.statement.end_lineno or found.statement.lineno
    return node is not None and found.source.statement(node).lineno <= end


def _seen_from(event: Event, place: Wrapping) -> ast.AST | None:
    """Where an event happens in the function of a place: itself, or the call that leads to it."""
    home = place.source.home(place.statement)
    around: Function | None = None
    for node, source, function in (
        *((call.node, call.source, call.function) for call in event.calls),
        (event.node, event.source, None),
    ):
        here = around.node is home if around is not None else home is place.source.tree
        if here and node is not None and source is place.source:
            return node
        around = function
    return None


def _by_its_name(event: Event, found: Wrapping, places: list[Event], uses: list[Event]) -> Wrapping:
    """Where `m = model.to(device)` gives a model another name, and steps go on calling it by its first."""
    called = {each.node.func.id if _is_by_name(each, event) else "" for each in uses}  # type: ignore[attr-defined]
    if event.kind != "bind" or not isinstance(found.target, ast.Name) or len(called) != 1 or found.target.id in called:
        return found
    for earlier in places:
        target = at(earlier, None).target if earlier.kind == "bind" and earlier.function is event.function else None
        if earlier.order < event.order and isinstance(target, ast.Name) and target.id in called:
            return replace(found, target=target, inside=None)
    return found


def _is_by_name(use: Event, place: Event) -> bool:
    """Whether a step calls a model by a name of the function that binds it: `model(x)`, not `self.net(x)`."""
    if not isinstance(use.node, ast.Call) or not isinstance(use.node.func, ast.Name):
        return False
    if use.function is place.function:
        return True
    if place.function is not None or use.function is None:
        return False
    name, home = use.node.func.id, use.function.node
    given = {each.arg for each in all_of(home, ast.arg)}
    return name not in given and not use.function.source.stores_within(home, name)


def _looked_through(module: Object, run: Interpreter) -> list[Event]:
    """`summary(model, (3, 32, 32))`, which runs a model in training mode on rows that are the same on all ranks."""
    return [event for event, made in _named_so(run, ".summary") if any(module in unwrapped(g) for g in made.args[:1])]


@once_a_run
def _named_so(run: Interpreter, ending: str) -> list[tuple[Event, Object]]:
    """What a run makes by functions whose names end so."""
    made = ((event, thing) for event in run.of("make") for thing in event.value.things)
    return [(event, thing) for event, thing in made if isinstance(thing, Object) and thing.name.endswith(ending)]


def _moves_of_parts(module: Object, run: Interpreter) -> list[Event]:
    """`net.to(device)`, where the model is `Trained(net)`."""
    inside = {part.key for part in parts(module) if part is not module}
    return [
        event
        for event in run.of("move")
        if is_to_device(event, run)
        and any(isinstance(each, Object) and each.key in inside for each in unwrapped(event.value))
    ]


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
    reads = (n for n in all_of(home, ast.Name) if n.id == target.id and n is not target)
    return all(_prints(event.source.statement(each)) for each in reads)


def _prints(statement: ast.stmt) -> bool:
    shown = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(shown, ast.Call) and last_name(shown.func) == "print"


def is_instead(event: Event, use: Event | None) -> bool:
    """Whether a condition decides between a change and the use: `if path: net = load(net)`, `else: fit(net)`."""
    statement = event.source.statement(event.node)
    for around in (each for each in event.source.ancestors(statement) if isinstance(each, ast.If) and use is not None):
        other = around.orelse if stands_in(event.source, statement, frozenset(around.body)) else around.body
        if use is not None and other and within(use, frozenset(other)):
            return True
    return False


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
                return replace(found, statement=statement, inside=None)
        elif any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == target for n in walk(statement)):
            break
    return found


def _initialises(function: Function) -> bool:
    """Whether a function fills parameters by layer."""
    calls = list(all_of(function.node, ast.Call))
    return any("init." in ast.unparse(each.func) for each in calls)


def in_list(module: Object, run: Interpreter, history: History, use: Event | None, first: int) -> Wrapping | None:
    """After `nets = [Net(), Net()]` or `nets = {"G": Net(), "D": Net()}`, or the loop over them that moves them, for a
    model that has no name of its own."""
    if freezes(module, history):
        return None
    bound = [e for e in history.lists.get(module, []) if e.order < first and _lasts(e, use)]
    grown = [e for e in history.held.get(module, []) if e.order < first and grown_list(e.node) is not None]
    if not bound and not grown:
        return None
    event = bound[-1] if bound else grown[-1]  # `nets = [net.to(device) for net in nets]`
    if bound:
        assert isinstance(event.node, (ast.Assign, ast.AnnAssign))
        if not all(unwrapped(run.values.get(each, Value())) for each in _elements(event.node.value)):
            return None  # `{"net": Net(), "step": 0}`
        kind = "dict" if isinstance(event.node.value, (ast.Dict, ast.DictComp)) else "list"
        found = replace(at(event, use), inside=None, each=kind)
    else:
        event = _last_growth(event, history, first)
        found = _after_growth(event, use)
    if (
        not isinstance(found.target, (ast.Name, ast.Attribute))
        or use is not None
        and within(use, frozenset([found.statement]))
    ):
        return None
    for moved in history.places.get(module, []):
        if moved.kind != "move" or not event.order < moved.order < first:
            continue
        loop = next((each.node for each in moved.loops), None)
        if not isinstance(loop, ast.For) or moved.loops[0].source is not found.source:
            return None
        if not _goes_over(loop.iter, found.target) or use is not None and within(use, frozenset([loop])):
            return None
        found = replace(found, statement=after_conditions(found.source, loop, use))
    return found


def in_holder(module: Object, run: Interpreter, history: History, use: Event | None = None) -> Wrapping | None:
    """After `state = SimpleNamespace(net=Net(), step=0)`, by what the code below calls it there: `state.net`."""
    source = module.source
    statement = source.statement(module.node)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], (ast.Name, ast.Attribute)):
        return None
    value, holder = statement.value, ast.unparse(statement.targets[0])
    repeated = (ast.For, ast.While, ast.Lambda, ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.SetComp)
    if freezes(module, history) or any(isinstance(each, repeated) for each in source.ancestors(module.node)):
        return None
    holds = next((each for each in _parts_of_holder(value) if module in unwrapped(run.values.get(each, Value()))), None)
    things = run.values.get(value, Value()).things
    if holds is None or not things or not all(map(_can_be_changed, things)):
        return None
    for node in walk(source.home(statement)):
        if not isinstance(node, (ast.Attribute, ast.Subscript)) or ast.unparse(node.value) != holder:
            continue
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            continue
        below = node.lineno > (statement.end_lineno or statement.lineno)
        if below and isinstance(node.ctx, ast.Load) and unwrapped(run.values.get(node, Value())) == {module}:
            return Wrapping(source, after_conditions(source, statement, use, node), node, None)
    return None


def _elements(value: ast.expr | None) -> list[ast.expr]:
    """What is written out in a list, tuple or dict."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return [each for each in value.elts if not isinstance(each, ast.Starred)]
    pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
    return [part for key, part in pairs if key is not None]


def _parts_of_holder(value: ast.expr) -> list[ast.expr]:
    """What is held by `dict(net=Net())`, `State(Net(), 0)` or `{"net": Net(), "step": 0}`."""
    if isinstance(value, ast.Dict):
        return value.values
    given = [*value.args, *(keyword.value for keyword in value.keywords)] if isinstance(value, ast.Call) else []
    return [*given, *(inner for each in given if isinstance(each, ast.Dict) for inner in each.values)]


def _can_be_changed(holder: object) -> bool:
    """Whether what it holds can be given another value: in a dict, a namespace, an object of a class that is neither
    frozen nor a tuple."""
    if isinstance(holder, Table):
        return True
    if not isinstance(holder, Object) or "module" in holder.roles:
        return False
    if holder.cls is None:
        return holder.name.endswith(("Namespace", "EasyDict", "Munch", "AttrDict"))
    told = [*holder.cls.node.bases, *holder.cls.node.decorator_list]
    return not any("NamedTuple" in ast.unparse(each) or "frozen" in ast.unparse(each) for each in told)


def _last_growth(added: Event, history: History, first: int) -> Event:
    """Where the last model comes into the list that one comes into: `nets.append(A())`, `nets.append(B())`."""
    alike = [
        each
        for events in history.held.values()
        for each in events
        if each.scope is added.scope and each.order < first and grown_list(each.node) is not None
        if ast.unparse(grown_list(each.node) or each.node) == ast.unparse(grown_list(added.node) or added.node)
    ]
    return max(alike, key=lambda each: each.order)


def _after_growth(added: Event, use: Event | None) -> Wrapping:
    """After the loop that fills a list: `for _ in range(3): nets.append(Net())`."""
    source, target = added.source, grown_list(added.node)
    assert target is not None
    statement = source.statement(added.node)
    for loop in source.ancestors(statement):
        inside = frozenset([loop])
        if isinstance(loop, (ast.FunctionDef, ast.AsyncFunctionDef)) or use is not None and within(use, inside):
            break
        if isinstance(loop, (ast.For, ast.While)):
            if any(_makes_list(each, ast.unparse(target)) for each in walk(loop)):
                break
            statement = loop
    return Wrapping(source, after_conditions(source, statement, use), target, None, each="list")


def grown_list(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """The list that a model comes into: `nets` of `nets.append(Net())`, `nets += [Net()]`, `nets = nets + [Net()]`."""
    target: ast.AST | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        target = node.func.value
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    return target if isinstance(target, (ast.Name, ast.Attribute)) else None


def _makes_list(node: ast.AST, name: str) -> bool:
    """`nets = []`"""
    bound = node.targets if isinstance(node, ast.Assign) else []
    value = node.value if isinstance(node, ast.Assign) else None
    return isinstance(value, (ast.List, ast.ListComp, ast.Call)) and name in map(ast.unparse, bound)


def _goes_over(node: ast.expr, held: ast.expr) -> bool:
    """`nets`, `nets.values()`, `enumerate(nets)`"""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items"):
        node = node.func.value
    elif isinstance(node, ast.Call) and last_name(node.func) == "enumerate" and node.args:
        node = node.args[0]
    return ast.unparse(node) == ast.unparse(held)


def _moves_by_name(event: Event) -> bool:
    """`net.to(device)` by itself, not `nets.append(Net().to(device))`"""
    statement = event.source.statement(event.node)
    node: ast.AST | None = statement.value if isinstance(statement, ast.Expr) else None
    while node is not event.node and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # `net.to(device).train()`
    return node is event.node


def _lasts(event: Event, use: Event | None) -> bool:
    """Whether what is bound where ``event`` is still holds where the model is used: `def initialize(model):
    model.apply(...)` binds a name that nobody else sees."""
    if use is None or event.function in _running(use):
        return True
    if event.kind == "bind":
        return not is_forgotten(event, [use])
    if event.kind != "move":
        return True
    target = at(event, use).target
    if not isinstance(target, ast.Name):
        return True
    assert event.function is not None
    return any(
        isinstance(node, ast.Return) and node.value is not None and target.id in _names(node.value)
        for node in walk(event.function.node)
    )


def is_forgotten(event: Event, uses: Iterable[Event]) -> bool:
    """Whether a function binds its parameter anew, does not use it, and its caller wants no result of it: `def
    init_net(net): net = nn.DataParallel(net)`, whose caller goes on with the model itself after `init_net(net)`."""
    call = event.calls[-1] if event.calls else None
    statement = event.source.statement(event.node)
    if call is None or call.node is None or any(call.function in _running(use) for use in uses):
        return False
    given = {each.arg for each in all_of(call.function.node.args, ast.arg)}
    bound = statement.targets if isinstance(statement, ast.Assign) else []
    caller = call.source.statement(call.node)
    return (
        isinstance(caller, ast.Expr)
        and caller.value is call.node
        and any(isinstance(each, ast.Name) and each.id in given for each in bound)
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


def _after_rounds(event: Event, made: Event, module: Object, run: Interpreter, use: Event | None) -> Wrapping | None:
    """After `for net in (G, D): net.to(device)`, by the name that the model has, or after the call that does it."""
    if event.function is made.function and event.source is made.source:
        around, target = set(made.source.ancestors(made.node)), at(made, use).target
        rounds = [a for a in event.source.ancestors(event.node) if isinstance(a, (ast.For, ast.While))]
        found = Wrapping(event.source, rounds[-1], target, None) if rounds and around.isdisjoint(rounds) else None
    else:
        found = _after_call(event, module, run, use)
    if found is None or use is not None and within(use, frozenset([found.statement])):
        return None
    begun = {loop.node for loop in made.loops}
    repeated = (a for a in found.source.ancestors(found.statement) if isinstance(a, (ast.For, ast.While)))
    if any(each not in begun for each in repeated):
        return None
    return replace(found, statement=after_conditions(found.source, found.statement, use, found.target))


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
    return {each.id for each in all_of(node, ast.Name)}


def at(event: Event, use: Event | None) -> Wrapping:
    """The place that an event names."""
    source = event.source
    if event.kind in ("bind_part", "alias_part"):
        assert isinstance(event.node, ast.expr)
        statement = after_conditions(source, source.statement(event.node), use, event.node)
        return Wrapping(source, statement, event.node, None, optional=event.value.optional)
    if event.kind == "move":
        assert isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute)
        target = event.node.func.value
        while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        return Wrapping(source, after_conditions(source, source.statement(event.node), use, target), target, None)
    assert isinstance(event.node, (ast.Assign, ast.AnnAssign))
    target = event.node.targets[-1] if isinstance(event.node, ast.Assign) else event.node.target
    statement = after_conditions(source, event.node, use, target)
    if statement is not event.node:
        return Wrapping(source, statement, target, None, optional=event.value.optional)
    optional = event.value.optional or _binds_none(event.node, ast.unparse(target))
    value = _only_model(event.node.value)
    return Wrapping(source, event.node, target, value, optional=optional)


def _only_model(value: ast.expr | None) -> ast.expr | None:
    """What makes the model: `Net()`, also in `Net() if fine else None`, but not in `A() if a else B()`."""
    if not isinstance(value, ast.IfExp):
        return value
    made = [each for each in (value.body, value.orelse) if not isinstance(each, ast.Constant)]
    return made[0] if len(made) == 1 and not isinstance(made[0], ast.IfExp) else None


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
            if _may_stay_none(source, parent, statement, name):
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


def _may_stay_none(source: Source, branch: ast.If, inside: ast.stmt, name: str) -> bool:
    """Whether there may be no model of a name where a condition does not hold: `net = None`, then `if fine: net =
    Net()`, or where its test asks for that, `if net is not None: net.to(device)`."""
    if _asks_for_none(branch.test, name):
        return True
    other = branch.orelse if stands_in(source, inside, frozenset(branch.body)) else branch.body
    if _binds(other, name):
        return False
    alone = not branch.orelse and any(_makes_anew(each, name) for each in _in_branches(branch))
    around: ast.AST = branch
    while isinstance(around, ast.stmt) and not isinstance(around, FUNCTIONS):
        parent = source.parents[around]
        chained = isinstance(parent, ast.If) and parent.orelse == [around]
        block = source.block(around)
        for earlier in reversed(block[: block.index(around)]):
            if isinstance(earlier, (*FUNCTIONS, ast.ClassDef)):
                continue
            if any(_binds_none(each, name) for each in walk(earlier)):
                return True
            if _binds([earlier], name):
                return False
        around = parent
        if chained and isinstance(parent, ast.If) and _makes_in(parent.body, name):
            alone = False  # one of several kinds, of which the script has one in any case
        while not isinstance(around, (ast.stmt, ast.Module)):
            around = source.parents[around]
    return alone and not _is_given(around, name)


def _is_given(function: ast.AST, name: str) -> bool:
    """Whether a function has a parameter of a name."""
    spec = function.args if isinstance(function, FUNCTIONS) else None
    return spec is not None and name in [each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]


def _asks_for_none(test: ast.expr, name: str) -> bool:
    """`net is not None`, `net`, `net is not None and cuda`"""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(_asks_for_none(each, name) for each in test.values)
    return ast.unparse(test) in (name, f"{name} is not None")


def _binds_none(node: ast.AST, name: str) -> bool:
    """`net = None`, `net = net.cuda() if net else None`"""
    if not isinstance(node, ast.Assign) or name not in map(ast.unparse, node.targets):
        return False
    values = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
    return any(isinstance(each, ast.Constant) and each.value is None for each in values)


def _binds(block: Sequence[ast.stmt], name: str) -> bool:
    """Whether a name is surely bound behind a block, to something else than None, or nothing goes on there."""
    for each in reversed(block):
        if isinstance(each, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return True
        if isinstance(each, ast.If) and _binds(each.body, name) and _binds(each.orelse, name):
            return True
        if isinstance(each, (ast.With, ast.Try)) and _binds(each.body, name):
            return True
        if isinstance(each, ast.Assign) and name in map(ast.unparse, each.targets) and not _binds_none(each, name):
            return True
    return False


def _makes_in(block: Sequence[ast.stmt], name: str) -> bool:
    return any(_makes_anew(each, name) for each in block)


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
        isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == name for node in walk(statement.value)
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
