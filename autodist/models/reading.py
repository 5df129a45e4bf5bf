"""What a class says of its parts: which it makes, which it reads, and which settings it asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from autodist.interpreter import Interpreter
from autodist.solve.parameters import LAYERS, WITHOUT_PARAMETERS
from autodist.source import Source, all_of, walk
from autodist.values import Class, Object, Value


def is_set_later(source: Source, name: str) -> bool:
    """Whether an attribute is bound elsewhere than where its object is made: `model.task = 1`."""
    if name not in source.text:
        return False
    stores = (n for n in all_of(source.tree, ast.Attribute) if isinstance(n.ctx, ast.Store))
    return any(n.attr == name and getattr(source.function(n), "name", "") != "__init__" for n in stores)


def binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def bound_to(name: str, home: ast.AST) -> Iterator[ast.expr]:
    """What a function assigns to a name, by itself or in a row of names."""
    for each in (node for node in walk(home) if isinstance(node, (ast.Assign, ast.AugAssign))):
        for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
            if isinstance(target, ast.Name) and target.id == name:
                yield each.value
            elif isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                pairs = zip(target.elts, each.value.elts, strict=False)
                yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`self.name`"""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def methods_of(cls: Class) -> dict[str, ast.FunctionDef]:
    """The methods of a class, those that it derives included. What has `__call__` alone has that for `forward`."""
    line = reversed(list(cls.line()))
    found = {each.name: each for one in line for each in one.node.body if isinstance(each, ast.FunctionDef)}
    return {"forward": found["__call__"]} | found if "__call__" in found else found


def reads_of(name: str, methods: dict[str, ast.FunctionDef]) -> frozenset[str]:
    """What a method reads of its object, by itself or through the methods that it calls."""
    found: set[str] = set()
    pending = [name]
    while pending:
        read = {n.attr for n in walk(methods[pending.pop()]) if is_own(n)} - found
        found |= read
        pending += [each for each in read if each in methods]
    return frozenset(found)


def _is_without_parameters(value: Value) -> bool:
    layers = [thing for thing in value.things if isinstance(thing, Object)]
    return all(each.cls is None and each.kind.startswith(WITHOUT_PARAMETERS) for each in layers)


def own_parts(module: Object) -> set[str]:
    """The attributes that hold modules with parameters."""
    return {
        name
        for name, value in module.attributes.items()
        if name.isidentifier()
        and not _is_without_parameters(value)
        and any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in value.things)
    }


def called_parts(block: Iterable[ast.AST], names: set[str], run: Interpreter) -> set[str]:
    """The parts of a module that a block calls, by attribute or as the variable of a loop over them."""
    found = set()
    for statement in block:
        for node in walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found |= {node.attr} & names
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                things = run.values.get(node.func, Value()).things
                if any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in things):
                    found.add(node.func.id)
    return found


def is_settled(test: ast.expr, module: Object) -> bool:
    """Conditions that are the same in every training step: settings of the module, `self.training`, None tests."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return True
    names = list(all_of(test, ast.Name))
    calls = list(all_of(test, ast.Call))
    return not calls and all(n.id == "self" for n in names)
