"""Where a module becomes a distributed one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.models.history import History, freezes, grows, history_of, learning
from autodist.models.moves import is_to_device
from autodist.models.nameless import in_argument, in_holder, in_list
from autodist.models.parts import parts, unwrapped
from autodist.models.places import after_conditions, at, lasts, running
from autodist.regions import stands_in, within
from autodist.script import Model, Wrapping
from autodist.source import all_of, last_name, walk
from autodist.values import (
    Function,
    Object,
    Value,
)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def settled_at(module: Object, run: Interpreter) -> Wrapping | None:
    """Where a module that nothing wraps is complete, and by which name it is known there."""
    found = wrapping_of(module, run, history_of(run))
    return found if found is not None and not found.unnamed else None


def wrapping_of(
    module: Object, run: Interpreter, history: History, without: frozenset[ast.stmt] = frozenset()
) -> Wrapping | None:
    """After the last statement that makes, moves or binds the model before its first use, ``without`` some of them."""
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
        if not without.isdisjoint(_statements_at(event)):
            continue
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
            if lasts(event, use):
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
        without_name = in_list(module, run, history, use, first) or in_holder(module, run, history, use)
        return without_name or in_argument(module, run)
    begun = placed.order if placed is not None and called is None else places[0].order
    grown_later = [event for event in grows(module, history) if begun < event.order < first]
    settling = (*freezes(module, history), *grown_later, *tried, *_moves_of_parts(module, run))
    found = _settled(found, [event for event in settling if begun < event.order < first], use)
    return replace(found, early=any(not _is_by_then(event, found) for event in grown_later))


def elsewhere(model: Model, run: Interpreter, tried: frozenset[ast.stmt]) -> Model | None:
    """A model at another place than those where wrappers were ``tried``, if there is one: where a script chooses one of
    several classes that each keep the model, the last place is in only one of them."""
    found = wrapping_of(model.object, run, history_of(run), tried)
    return replace(model, wrapping=found) if found is not None and found.statement not in tried else None


def _statements_at(event: Event) -> list[ast.AST]:
    """The statement in which something happens, and those around it."""
    statement = event.source.statement(event.node)
    return [statement, *event.source.ancestors(statement)]


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


def _moves_by_name(event: Event) -> bool:
    """`net.to(device)` by itself, not `nets.append(Net().to(device))`"""
    statement = event.source.statement(event.node)
    node: ast.AST | None = statement.value if isinstance(statement, ast.Expr) else None
    while node is not event.node and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # `net.to(device).train()`
    return node is event.node


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
        if use is None or around in running(use):
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
        function is not None and function.owner is owner for each in uses if each.grad for function in running(each)
    ):
        return None
    for index, call in enumerate(event.calls):
        if call.node is None:
            return None
        given = [*call.node.args, *(keyword.value for keyword in call.node.keywords)]
        target = next((arg for arg in given if module in unwrapped(run.values.get(arg, Value()))), None)
        around = event.calls[index - 1].function if index else None
        if isinstance(target, ast.Name) and around in running(use):
            statement = after_conditions(call.source, call.source.statement(call.node), use, target)
            return Wrapping(call.source, statement, target, None)
    return None


def wrap_plan(models: list[Model]) -> dict[ast.stmt | ast.expr, tuple[ast.expr, ...]]:
    """The wraps that the interpreter takes for granted."""
    plan: dict[ast.stmt | ast.expr, tuple[ast.expr, ...]] = {}
    for model in models:
        if model.wrapping is not None and model.bypassed is None and not model.data_parallel:
            place = model.wrapping.target if model.wrapping.unnamed else model.wrapping.statement
            plan[place] = (*plan.get(place, ()), model.wrapping.target)
    return plan
