"""Places where a script binds or moves a model, and whether what is wrapped there is what its steps use."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from autodist.interpreter import Event
from autodist.regions import stands_in, within
from autodist.script import Wrapping
from autodist.source import Source, all_of, last_name, walk
from autodist.values import Function

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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


def lasts(event: Event, use: Event | None) -> bool:
    """Whether what is bound where ``event`` is still holds where the model is used: `def initialize(model):
    model.apply(...)` binds a name that nobody else sees."""
    if use is None or event.function in running(use):
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
    if call is None or call.node is None or any(call.function in running(use) for use in uses):
        return False
    given = {each.arg for each in all_of(call.function.node.args, ast.arg)}
    bound = statement.targets if isinstance(statement, ast.Assign) else []
    caller = call.source.statement(call.node)
    return (
        isinstance(caller, ast.Expr)
        and caller.value is call.node
        and any(isinstance(each, ast.Name) and each.id in given for each in bound)
    )


def running(event: Event) -> tuple[Function | None, ...]:
    """The functions that are being run, and None for the module."""
    return (None, *(call.function for call in event.calls))


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in all_of(node, ast.Name)}
