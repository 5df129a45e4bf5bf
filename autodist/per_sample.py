"""What data sets draw at random while they make a sample, which no step of the analysis enters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.script import Loader
from autodist.values import NOTHING, Class, External, Function, Object


def drawn_by_samples(loader: Loader, run: Interpreter) -> set[str]:
    """The libraries that the data set of a loader draws from while it makes a sample."""
    found: set[str] = set()
    pending = [loader.object.argument("dataset", 0) or NOTHING]
    seen: set[Object] = set()
    while pending:
        for data in (t for t in pending.pop().things if isinstance(t, Object) and t not in seen):
            seen.add(data)
            if data.cls is None:  # a subset, or several joined
                pending += data.args
                continue
            for function in _called_within(data.cls, "__getitem__", set()):
                found |= set(mentioned(function, run))
    return found


def _called_within(cls: Class, name: str, seen: set[str]) -> Iterator[Function]:
    """A method, and those of its class that it calls."""
    found = cls.find(name)
    if found is None or name in seen:
        return
    seen.add(name)
    for function in (t for t in found[1].things if isinstance(t, Function)):
        yield function
        for node in ast.walk(function.node):
            own = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value)
            if own == "self" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield from _called_within(cls, node.func.attr, seen)


def mentioned(function: Function, run: Interpreter) -> Iterator[str]:
    """The libraries that a function which no step of the analysis enters draws from, by what it calls."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and {"random_draw", "index_draw"} & run.catalog.roles(_name(node.func, function)):
            yield _name(node.func, function).partition(".")[0]


def _name(node: ast.expr, function: Function) -> str:
    """The name in its library of what a function calls: `numpy.random.rand` for `np.random.rand`."""
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, function)}.{node.attr}"
    scope = function.scope.find(node.id) if isinstance(node, ast.Name) else None
    held = scope.names[node.id].things if scope is not None and isinstance(node, ast.Name) else ()
    return next((thing.name for thing in held if isinstance(thing, External)), "")
