"""Models that come to their device in a function that trains them, once for each epoch or fold maybe: they are brought
there where they are wrapped, if what the device is called is known there."""

from __future__ import annotations

import ast
from dataclasses import replace

from autodist.interpreter import Event, Interpreter
from autodist.models.moves import LateMove, held_by, late_moves, too_late
from autodist.models.parts import Key
from autodist.script import Concern, Model, Wrapping
from autodist.source import Source, own_nodes, walk

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def placed_when_wrapped(models: list[Model], run: Interpreter) -> tuple[list[Model], tuple[Concern, ...]]:
    """The models, those that would move too late with the move ahead of their wrapper, and the moves that stay late."""
    concerns = []
    for late in late_moves((model.object for model in models), run):
        codes: dict[Key, str] = {}
        held = held_by(late.move)
        moved = [model for model in models if model.object.key in held]
        for model in moved:
            code = _ahead(late, model.wrapping, run) if model.wrapping is not None else None
            if code is not None:
                codes[model.object.key] = code
        if not moved or len(codes) < len(moved):
            concerns.append(too_late(late))
        else:
            models = [_moved(model, codes.get(model.object.key)) for model in models]
    return models, tuple(concerns)


def _moved(model: Model, code: str | None) -> Model:
    if model.wrapping is None or code is None:
        return model
    return replace(model, wrapping=replace(model.wrapping, move=code))


def _ahead(late: LateMove, wrapping: Wrapping, run: Interpreter) -> str | None:
    """`.to(device)` as it can be written where a model is wrapped, or None."""
    call = late.move.node
    if late.wrap.kind != "wrapped" or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if any(isinstance(each, (ast.If, ast.IfExp, ast.Try)) for each in late.move.source.ancestors(call)):
        if not _guards_script(late.move.source, call):
            return None
    used = (e for e in run.of("forward") if late.wrap.order < e.order < late.move.order)
    if any(not held_by(late.move).isdisjoint(held_by(each)) for each in used):
        return None
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    if not given:
        return f".{call.func.attr}()" if call.func.attr == "cuda" else None
    device = _named_there(given[0], late.move, wrapping, len(late.move.calls))
    return f".{call.func.attr}({device})" if device is not None else None


def _guards_script(source: Source, node: ast.AST) -> bool:
    """Whether nothing but `if __name__ == "__main__":` decides about it."""
    tests = [each for each in source.ancestors(node) if isinstance(each, (ast.If, ast.IfExp, ast.Try))]
    return all(isinstance(each, ast.If) and "__name__" in ast.unparse(each.test) for each in tests)


def _named_there(node: ast.expr, move: Event, wrapping: Wrapping, depth: int) -> str | None:
    """What a device that a function is told is called where it is called from, up to where the model is wrapped."""
    source = move.source if depth == len(move.calls) else move.calls[depth].source
    if isinstance(node, ast.Constant) and node.value == "cuda":
        return source.code(node)
    if isinstance(node, ast.Attribute):
        return _held_there(node, move, wrapping, depth)
    if not isinstance(node, ast.Name):
        return None
    function = _around(source, node)
    if function is _around(wrapping.source, wrapping.statement) and source is wrapping.source:
        return node.id if _is_bound(node.id, function or source.tree, wrapping) else None
    if function is None:
        return node.id if source is wrapping.source and _is_bound(node.id, source.tree, wrapping) else None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    if node.id not in names:
        top = source is wrapping.source and not source.stores_within(function, node.id)
        return node.id if top and _is_bound(node.id, source.tree, wrapping) else None
    call = move.calls[depth - 1] if depth else None
    if call is None or call.node is None or call.function.node is not function:
        return None
    if source.stores_within(function, node.id):
        return None
    bound = [*names[1:]] if call.function.owner is not None else names
    given = next((k.value for k in call.node.keywords if k.arg == node.id), None)
    if given is None and node.id in bound and bound.index(node.id) < len(call.node.args):
        given = call.node.args[bound.index(node.id)]
    if given is None or any(isinstance(each, ast.Starred) for each in call.node.args):
        return None
    return _named_there(given, move, wrapping, depth - 1)


def _held_there(node: ast.Attribute, move: Event, wrapping: Wrapping, depth: int) -> str | None:
    """`args.device`, or `self.device` where the same object wraps the model."""
    source = move.source if depth == len(move.calls) else move.calls[depth].source
    here, there = _around(source, node), _around(wrapping.source, wrapping.statement)
    if source is wrapping.source and isinstance(node.value, ast.Name) and here is not None and there is not None:
        first = next((each.arg for each in there.args.args), None)
        same = source.parents.get(here) is source.parents.get(there) and isinstance(
            source.parents.get(here), ast.ClassDef
        )
        if same and here is not there and node.value.id == first == here.args.args[0].arg:
            return _own_attribute(node, there, wrapping)
    held = _named_there(node.value, move, wrapping, depth) if isinstance(node.value, ast.Name) else None
    stores = [n for n in walk(wrapping.source.tree) if isinstance(n, ast.Attribute) and n.attr == node.attr]
    stores = [n for n in stores if isinstance(n.ctx, ast.Store)]
    ahead = all(n.lineno < wrapping.statement.lineno and _around(wrapping.source, n) in (None, there) for n in stores)
    return f"{held}.{node.attr}" if held is not None and ahead else None


def _own_attribute(node: ast.Attribute, there: ast.AST, wrapping: Wrapping) -> str | None:
    """What an attribute is called in the method of the object that wraps the model, which binds both."""
    source, bound = wrapping.source, list[ast.Assign]()
    for each in walk(source.parents[there]):
        if isinstance(each, ast.Assign) and any(ast.unparse(node) == ast.unparse(target) for target in each.targets):
            bound.append(each)
    if len(bound) != 1 or _around(source, bound[0]) is not there:
        return None
    if bound[0].lineno < wrapping.statement.lineno:
        return ast.unparse(node)
    given = bound[0].value
    known = isinstance(given, ast.Name) and _is_bound(given.id, there, wrapping)
    return ast.unparse(given) if known else None


def _is_bound(name: str, home: ast.AST, wrapping: Wrapping) -> bool:
    """Whether a name means one thing in a function or module, that it has got ahead of where the model is wrapped."""
    if isinstance(home, FUNCTIONS) and name in {each.arg for each in walk(home.args) if isinstance(each, ast.arg)}:
        return not wrapping.source.stores_within(home, name)
    own = own_nodes(home) if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else ()
    stores = [n for n in own if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    if not stores and isinstance(home, FUNCTIONS):
        return _is_bound(name, wrapping.source.tree, wrapping)
    inside = _around(wrapping.source, wrapping.statement)
    later = inside is not None and home is wrapping.source.tree  # the module has been run by then
    return len(stores) == 1 and (later or stores[0].lineno < wrapping.statement.lineno)


def _around(source: Source, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    return next((each for each in source.ancestors(node) if isinstance(each, FUNCTIONS)), None)
