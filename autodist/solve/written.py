"""What expressions are written down with, and what lists, dicts and objects hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeGuard

from autodist.program import Operation, Program, Value, held
from autodist.source import Source, children, shortened
from autodist.trace.containers import GROWING
from autodist.trace.things import Heap, Mapping, Sequence


def code_of(operation: Operation) -> str:
    """How an operation is written, or else what it is called."""
    node = operation.node
    return shortened(operation.source.code(node)) if isinstance(node, (ast.expr, ast.AugAssign)) else operation.name


def contents(thing: object) -> Iterator[Value]:
    """What a list, a dict or an object holds."""
    yield from thing.contents() if isinstance(thing, Heap) else ()


def is_flat(thing: object) -> bool:
    """Whether it is a list or a dict of numbers, and not of further lists."""
    return isinstance(thing, (Mapping, Sequence)) and not any(part.things for part in contents(thing))


def loops_at(node: ast.AST) -> list[ast.For | ast.comprehension]:
    """The loops that an expression or a statement is."""
    if isinstance(node, ast.For):
        return [node]
    return list(getattr(node, "generators", []))


def loop_over(loop: ast.For | ast.comprehension) -> ast.expr:
    """What a loop goes over: `loader` of `for i, batch in enumerate(tqdm(loader))`."""
    over = loop.iter
    while isinstance(over, ast.Call) and over.args:
        over = over.args[0]
    return over


def is_listing(node: ast.expr) -> TypeGuard[ast.ListComp | ast.SetComp | ast.GeneratorExp]:
    return isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp))


def covers(one: Value, other: Value) -> bool:
    """Whether an expression in all contexts may be what a value is in one."""
    return bool(other.operations or other.things or other.constants) and (
        other.operations <= one.operations and other.things <= one.things and other.constants <= one.constants
    )


def holds(one: Value, other: Value) -> bool:
    """Whether a list or a dict holds what another value may be."""
    return bool(one.things and other.operations) and other.operations <= {*held(one)}


def written(thing: object, node: ast.AST | None) -> list[tuple[ast.expr, Value]]:
    """The expressions that a list, a tuple or a dict is written down with, and what they are in one context."""
    if getattr(thing, "node", None) is not node:
        return []
    match node, thing:
        case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part), Sequence():
            return [(part, thing.element)]
        case ast.Tuple(elts=parts) | ast.List(elts=parts), Sequence(parts=values) if values is not None:
            if len(parts) == len(values):
                return list(zip(parts, values, strict=True))
        case ast.Dict(keys=keys, values=parts), Mapping(entries=entries):
            names = [each.value if isinstance(each, ast.Constant) else None for each in keys]
            if len(entries) == len(names) and all(name in entries for name in names):
                return [(part, entries[name].value) for name, part in zip(names, parts, strict=True)]
    return []


def is_put(node: ast.expr, source: Source) -> bool:
    """Whether an expression is put into a list, as `put_in` tells: `kept.append(loss)`, `kept += [loss]`"""
    above = source.parents.get(node)
    above = source.parents.get(above) if isinstance(above, (ast.List, ast.Tuple)) else above
    method = above.func if isinstance(above, ast.Call) else None
    return isinstance(above, ast.AugAssign) or isinstance(method, ast.Attribute) and method.attr in GROWING


def stores(thing: object) -> Iterator[tuple[list[ast.expr], Operation]]:
    """What is put into a list after it was made, and an operation that stands for doing so."""
    for node, region in thing.stores.items() if isinstance(thing, Sequence) else ():
        given = [node.value] if isinstance(node, ast.AugAssign) else list(getattr(node, "args", []))
        yield given, Operation(-1, "store", (), {}, region.source, node, region)


def put_in(thing: object) -> Iterator[tuple[ast.expr, Operation]]:
    """The same, each of a tuple or a list that is written down there for itself."""
    yield from ((part, user) for given, user in stores(thing) for part in parts_apart(given))


def parts_of(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that one is computed from, or a statement."""
    match node:
        case ast.Call():
            if isinstance(node.func, ast.Attribute):
                yield node.func.value
            yield from node.args
            yield from (each.value for each in node.keywords)
        case ast.Lambda():
            return
        case _:
            yield from (each for each in children(node) if isinstance(each, ast.expr))


def assigned(operation: Operation) -> list[ast.expr]:
    """The expressions that an operation is computed from, what is assigned to a place of a tensor among them."""
    found = list(parts_of(operation.node))
    if isinstance(operation.node, ast.Lambda):
        return [operation.node.body]
    if operation.name == "setitem":
        statement = operation.source.statement(operation.node)
        found += [statement.value] if isinstance(statement, (ast.Assign, ast.AugAssign)) else []
    return found


def parts_apart(parts: list[ast.expr]) -> Iterator[ast.expr]:
    """Some expressions, of lists and tuples that are written down there what these hold: `torch.cat([found, x])`"""
    for each in parts:
        yield from each.elts if isinstance(each, (ast.List, ast.Tuple)) else [each]


def read_by(operation: Operation) -> Iterator[ast.expr]:
    """The expressions that an operation is computed from, those in texts, lists and tuples among them."""
    pending = assigned(operation)
    while pending:
        each = pending.pop()
        yield each
        if isinstance(each, (ast.FormattedValue, ast.JoinedStr, ast.Starred, ast.Tuple, ast.List, ast.Dict, ast.IfExp)):
            pending += parts_of(each)


@lru_cache(maxsize=2)
def readers(program: Program) -> dict[ast.AST, list[Operation]]:
    """The operations of a program that are computed from each expression, as `read_by` tells."""
    found: dict[ast.AST, dict[Operation, None]] = {}
    for each in program.operations:
        for part in read_by(each):
            found.setdefault(part, {})[each] = None
    return {part: list(users) for part, users in found.items()}
