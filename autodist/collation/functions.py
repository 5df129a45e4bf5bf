"""Which functions of a project make a batch, and what they are told beforehand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.source import last_name
from autodist.values import Class, Function, Object, Value

BEGINNING = "__init__"


def sole(collate: Value) -> Function | None:
    """The one function that a call of a value runs, if it is one."""
    functions = list(called(collate))
    return functions[0] if len(functions) == 1 else None


def called(value: Value) -> Iterator[Function]:
    """What a call of a value runs: a function, a method of an object, what makes an object of a class."""
    for thing in value.things:
        if isinstance(thing, Function):
            yield thing
        elif isinstance(thing, Object) and thing.cls is not None:
            yield from (replace(method, owner=thing) for method in methods_of(thing.cls, "__call__"))
        elif isinstance(thing, Class):
            yield from methods_of(thing, BEGINNING)


def methods_of(cls: Class, name: str) -> Iterator[Function]:
    found = cls.find(name)
    yield from (each for each in (found[1].things if found is not None else ()) if isinstance(each, Function))


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]


def settings_of(function: Function) -> dict[str, object]:
    """What parameters of a function are that it is told beforehand, by `partial` or a default."""
    spec = function.node.args
    named = [*spec.posonlyargs, *spec.args]
    defaults = [*zip(named[len(named) - len(spec.defaults) :], spec.defaults, strict=True)]
    defaults += [(each, told) for each, told in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if told is not None]
    found: dict[str, object] = {
        each.arg: told.value for each, told in defaults if isinstance(told, ast.Constant) and told.value is not None
    }
    return found | {name: value.const for name, value in function.keywords.items()}


def declared(thing: object) -> tuple[list[str], bool]:
    """The names of the fields that a class declares, as a named tuple or a dataclass does, and whether it is a
    tuple."""
    if isinstance(thing, Object) and thing.name == "collections.namedtuple":
        listed = thing.node.args[1] if len(thing.node.args) > 1 else None
        if isinstance(listed, ast.Constant) and isinstance(listed.value, str):
            return listed.value.replace(",", " ").split(), True
        named = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
        return [each.value for each in named if isinstance(each, ast.Constant) and isinstance(each.value, str)], True
    if not isinstance(thing, Class):
        return [], False
    is_tuple = any(last_name(each) == "NamedTuple" for each in thing.node.bases)
    decorators = (each.func if isinstance(each, ast.Call) else each for each in thing.node.decorator_list)
    if not is_tuple and not any(last_name(each) == "dataclass" for each in decorators):
        return [], False
    annotated = (each.target for each in thing.node.body if isinstance(each, ast.AnnAssign))
    return [each.id for each in annotated if isinstance(each, ast.Name)], is_tuple
