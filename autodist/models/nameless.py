"""Where models are wrapped that have no name of their own: in a list, in an object, in the argument of a call."""

from __future__ import annotations

import ast
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.models.history import History, freezes, history_of
from autodist.models.parts import unwrapped
from autodist.models.places import after_conditions, at, lasts
from autodist.regions import within
from autodist.script import Wrapping
from autodist.solve.passes import made_for
from autodist.source import last_name, walk
from autodist.values import Object, Table, Value, Wrapped


def in_list(module: Object, run: Interpreter, history: History, use: Event | None, first: int) -> Wrapping | None:
    """After `nets = [Net(), Net()]` or `nets = {"G": Net(), "D": Net()}`, or the loop over them that moves them, for a
    model that has no name of its own."""
    if freezes(module, history):
        return None
    bound = [e for e in history.lists.get(module, []) if e.order < first and lasts(e, use)]
    grown = [e for e in history.held.get(module, []) if e.order < first and grown_list(e.node) is not None]
    if not bound and not grown:
        return None
    event = bound[-1] if bound else grown[-1]  # `nets = [net.to(device) for net in nets]`
    if bound:
        assert isinstance(event.node, (ast.Assign, ast.AnnAssign))
        held = (run.values.get(each, Value()) for each in _elements(event.node.value))
        if not all(any(True for _ in each.objects("module")) or _is_wrapped(each) for each in held):
            return None  # `{"net": Net(), "step": 0}`, `[Net(), loader]`
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


def _is_wrapped(value: Value) -> bool:
    return any(isinstance(each, Wrapped) for each in value.things)


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


def in_argument(module: Object, run: Interpreter) -> Wrapping | None:
    """Around `Net()` of `fit(Net(), loader)`, if that is the only call which makes such a model for a function."""
    given = list(made_for(run.runs.program, module.source, module.node))
    if len(given) != 1 or freezes(module, history_of(run)):
        return None
    source, argument = given[0]
    written = {event.node for kind in ("save", "write") for event in run.of(kind)}
    if not written.isdisjoint(source.ancestors(argument)):
        return None  # `torch.save(fit(Net(), loader), path)`, of which the argument is to be moved
    return Wrapping(source, source.statement(argument), argument, argument)
