"""Methods that gather the parameters of a model, called where these are whole: they would be sharded again before the
method around them has done with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.fsdp.sharding import blocks_of, reads_layers, runs_layers
from autodist.models import keys
from autodist.script import Model, Site
from autodist.source import walk
from autodist.values import NOTHING, Function, Object

LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def nested(models: list[Model]) -> Iterator[Site]:
    """`h = self.encode(x)` in a forward pass that goes on with other layers, where `encode` is called on its own
    elsewhere; `self(x)` in such a method."""
    for model in models:
        for module in (model.object, *model.alternatives) if model.methods and not model.wrapped else ():
            gathering = [each for name in ("forward", *model.methods) for each in module.functions(name)]
            pending, seen = list(gathering), set[ast.AST]()
            while pending:
                function = pending.pop()
                if function.node in seen:
                    continue
                seen.add(function.node)
                yield from _calls(function, module, model, function not in gathering)
                names = {each.attr for each in _own(function)} - {"forward", *model.methods}
                pending += [each for name in names for each in module.functions(name)]


def _own(function: Function) -> Iterator[ast.Attribute]:
    """What a method reads of the object itself."""
    for node in walk(function.node):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield node


def _calls(function: Function, module: Object, model: Model, goes_on: bool) -> Iterator[Site]:
    """Calls behind which a method needs whole parameters; what calls it may need them if it ``goes_on``."""
    used = [each for each in _own(function) if _needs_whole(each, function, module, model)]
    for call in walk(function.node):
        if isinstance(call, ast.Call) and (called := _called(call)) and called in (*model.methods, "self"):
            if called == "self" and function.name == "forward" or called == function.name:
                continue
            if goes_on or any(_follows(use, call, function) for use in used):
                yield Site(function.source, call)


def _called(call: ast.Call) -> str:
    """The method of its own that is called, `self` for the forward pass."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return call.func.attr
    return "self" if isinstance(call.func, ast.Name) and call.func.id == "self" else ""


def _needs_whole(read: ast.Attribute, function: Function, module: Object, model: Model) -> bool:
    """Whether layers are read that do not gather their parameters themselves."""
    if read.attr in model.methods or read.attr == "forward":
        return False
    value = module.attributes.get(read.attr, NOTHING)
    units = keys(block for unit in model.units for block in blocks_of(model, unit))
    held = keys(t for t in value.things if isinstance(t, Object))
    return not (held and held <= units) and (
        reads_layers(read, function, module) or read.attr != function.name and runs_layers(module, read.attr)
    )


def _follows(use: ast.Attribute, call: ast.Call, function: Function) -> bool:
    """Whether something may be read once a call is done: further down, around it, or in the next turn of a loop."""
    source = function.source
    statement, other = source.statement(call), source.statement(use)
    if other is statement or use.lineno > (statement.end_lineno or statement.lineno):
        return True
    loops = [each for each in source.ancestors(call) if isinstance(each, LOOPS)]
    return any(each in loops for each in source.ancestors(use))
