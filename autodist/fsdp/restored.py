"""Tensors read from files, which are whole, and what they are put in place of: lists and dicts of shards, such as a
running average that an object keeps beside a model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.fsdp.sharding import starts
from autodist.fsdp.weights import sharded_keys
from autodist.interpreter import Interpreter
from autodist.models import Keys, keys, unwrapped
from autodist.script import Model, Site
from autodist.source import Source, all_of, walk
from autodist.values import NOTHING, External, Function, Object, Table, Value, of, union

TAKING = frozenset("items values get pop copy to cpu cuda clone detach float double".split())
"""Methods that give what they are asked of, or a part of that."""
DEPTH = 8


def restored(run: Interpreter, models: list[Model]) -> Iterator[tuple[Site, str]]:
    """What comes from a file and takes the place of shards, `self.shadow = state["shadow"]`, each with the name of
    those: it is cut as they are."""
    ours = sharded_keys(run, models)
    first = min(starts(run, (model for model in models if not model.wrapped)).values(), default=0)
    if not ours or not any(event.order >= first for event in run.of("load")):
        return
    for source in run.project.sources:
        for node in walk(source.tree):
            if not isinstance(node, ast.Assign) or len(node.targets) > 1 or node not in run.executed:
                continue
            target = node.targets[0]
            if is_loaded(node.value, source, run) and _holds_shards(_former(target, run), run, ours):
                yield Site(source, node.value), source.code(target)


def _former(target: ast.expr, run: Interpreter) -> Value:
    """What an attribute or an entry of a dict holds wherever it is read."""
    if not isinstance(target, (ast.Attribute, ast.Subscript)):
        return NOTHING
    name, owners = _name(target), run.values.get(target.value, NOTHING).things
    if name is None or not any(isinstance(t, (Object, Table)) for t in owners):
        return NOTHING
    return union(
        value
        for node, value in run.values.items()
        if isinstance(node, type(target))
        and value.things
        and _name(node) == name
        and not owners.isdisjoint(run.values.get(node.value, NOTHING).things)
    )


def _name(node: ast.expr) -> str | None:
    match node:
        case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return None


def _holds_shards(value: Value, run: Interpreter, ours: Keys) -> bool:
    return any(keys(unwrapped(of(each.module))) & ours for each in run.parameters_in(value))


def is_loaded(node: ast.expr, source: Source, run: Interpreter, depth: int = DEPTH) -> bool:
    """Whether an expression is read from a file, or taken out of what is."""
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value, attr="data"):
            return is_loaded(value, source, run, depth)
        case ast.Call():
            return depth > 0 and _gives_loaded(node, source, run, depth)
        case ast.Name(id=name) if depth:
            home = source.home(node)
            bound = [each for each in walk(home) if _binds(each, name)]
            if any(is_loaded(each, source, run, depth - 1) for each in map(_given, bound) if each is not None):
                return True
            return isinstance(home, ast.FunctionDef) and any(
                is_loaded(each, where, run, depth - 1) for each, where in _arguments(home, name, run)
            )
    return False


def _gives_loaded(call: ast.Call, source: Source, run: Interpreter, depth: int) -> bool:
    things = run.values.get(call.func, NOTHING).things
    if any(isinstance(t, External) and t.name in ("torch.load", "pickle.load") for t in things):
        return True
    for function in (t for t in things if isinstance(t, Function)):
        inside = (n for n in all_of(function.node, ast.Return) if n.value is not None)
        if any(is_loaded(n.value, function.source, run, depth - 1) for n in inside if n.value is not None):
            return True
    taken = isinstance(call.func, ast.Attribute) and call.func.attr in TAKING
    return taken and isinstance(call.func, ast.Attribute) and is_loaded(call.func.value, source, run, depth - 1)


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return any(isinstance(t, ast.Name) and t.id == name for t in targets)
        case ast.For(target=target) | ast.comprehension(target=target):
            return any(isinstance(t, ast.Name) and t.id == name for t in getattr(target, "elts", [target]))
    return False


def _given(node: ast.AST) -> ast.expr | None:
    """What a name is bound to; of a loop, what it goes over."""
    if isinstance(node, ast.Assign):
        return node.value
    return node.iter if isinstance(node, (ast.For, ast.comprehension)) else None


def _arguments(function: ast.FunctionDef, name: str, run: Interpreter) -> Iterator[tuple[ast.expr, Source]]:
    """What the callers of a function give for one of its parameters."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if name not in names:
        return
    for call, source in run.callers.get(function, {}).items():
        at = names.index(name) - (isinstance(call.func, ast.Attribute) and names[0] in ("self", "cls"))
        yield from ((k.value, source) for k in call.keywords if k.arg == name)
        if at < len(call.args) and not any(isinstance(each, ast.Starred) for each in call.args[: at + 1]):
            yield call.args[at], source
