"""How code says that it sorts, fills up or takes apart what it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard, TypeVar

from autodist.collation.kinds import Key
from autodist.source import all_of, first_index, last_name, walk

SORTING = frozenset("sort sorted argsort".split())
ADDING_AN_AXIS = frozenset("unsqueeze expand_dims view reshape".split())


Node = TypeVar("Node", bound=ast.AST)


def sorts(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in SORTING


def outgrows(name: str, value: ast.expr) -> bool:
    """`longest = max(longest, len(text))`"""
    called = last_name(value.func) if isinstance(value, ast.Call) else ""
    given = value.args if isinstance(value, ast.Call) and called in ("max", "maximum") else []
    return any(isinstance(each, ast.Name) and each.id == name for each in given)


def outgrown(test: ast.expr, statement: ast.stmt) -> list[str]:
    """The name that becomes the longest yet, `if len(text) > longest: longest = len(text)`."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or not isinstance(statement, ast.Assign):
        return []
    larger, smaller = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        larger, smaller = smaller, larger
    elif not isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        return []
    alike = ast.unparse(statement.value) == ast.unparse(larger)
    targets = [each.id for each in statement.targets if isinstance(each, ast.Name)]
    return [each for each in targets if alike and each == ast.unparse(smaller)]


def bound_in(loop: ast.For | ast.AsyncFor) -> set[str]:
    """What a loop takes one after the other, and what its body binds anew for each."""
    within = (each for top in (loop.target, *loop.body) for each in walk(top))
    return {each.id for each in within if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def names_in(node: ast.expr) -> set[str]:
    return {each.id for each in all_of(node, ast.Name)}


def goes_on(node: ast.stmt) -> TypeGuard[ast.For]:
    """Whether a loop is run once for each place that is missing: `for _ in range(longest - len(text))`, `for _ in
    range(len(text), longest)`."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call) or last_name(node.iter.func) != "range":
        return False
    first = node.iter.args[0]
    if len(node.iter.args) > 1:
        return not isinstance(first, ast.Constant)
    return isinstance(first, ast.BinOp) and isinstance(first.op, ast.Sub) and not isinstance(first.right, ast.Constant)


def lengthened(node: ast.stmt) -> ast.expr | None:
    """What a statement makes longer: `text.append(PAD)`, `text += [PAD]`, `text = text + [PAD]`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.value if node.value.func.attr in ("append", "extend", "insert") else None
    if isinstance(node, ast.Assign):
        return node.targets[0]
    return node.target if isinstance(node, ast.AugAssign) else None


def taken_by(target: ast.expr, over: ast.expr) -> dict[str, str]:
    """The names of a loop, each with that of what it is taken of: `for text, label in zip(texts, labels)`."""
    if isinstance(target, ast.Name) and isinstance(over, ast.Name):
        return {target.id: over.id}
    if not isinstance(over, ast.Call) or not isinstance(target, (ast.Tuple, ast.List)):
        return {}
    name = last_name(over.func)
    if name == "zip":
        pairs = zip(target.elts, over.args, strict=False)
    elif name == "enumerate" and len(target.elts) == 2:
        pairs = zip(target.elts[1:], over.args, strict=False)
    else:
        return {}
    return {key: value for inner in (taken_by(*pair) for pair in pairs) for key, value in inner.items()}


def place_of(node: ast.Subscript | ast.Attribute) -> str:
    """What a part of a sample is called, whatever the sample is."""
    return ast.unparse(node.slice) if isinstance(node, ast.Subscript) else node.attr


def written_key(node: ast.expr | None) -> Key | None:
    """The key of a field, where it is written out."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)) else None


def nodes_of(node: ast.AST, kind: type[Node]) -> Iterator[Node]:
    return (each for each in walk(node) if isinstance(each, kind))


def first_name(target: ast.expr) -> str | None:
    """The name that a loop gives to the first of what it takes."""
    first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else target
    return first.id if isinstance(first, ast.Name) else None


def adds_axis(node: ast.expr) -> bool:
    """`x.unsqueeze(0)`, `x[None]`, `x.view(1, -1)`."""
    if isinstance(node, ast.Subscript):
        first = first_index(node)
        return isinstance(first, ast.Constant) and first.value is None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ADDING_AN_AXIS or adds_axis(node.func.value)
    return False
