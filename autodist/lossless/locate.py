"""Finds the lossless twin of a syntax tree's node by walking both trees down side by side.

Positions would be shorter, but they are unreliable inside f-strings before Python 3.12, count bytes in one tree
and characters in the other, and disagree about parentheses; and computing them for a whole file costs more than
parsing it. The structure is the same in both trees, but for what this file spells out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import libcst as cst

from autodist.source import Source

Pair = tuple[ast.AST, cst.CSTNode, tuple[cst.CSTNode, ...]]
"""A node, its twin, and the lossless nodes that stand between the twins of the node and of its parent."""
Field = tuple[cst.CSTNode, tuple[cst.CSTNode, ...]]
"""An f-string's field, and the lossless nodes that stand between the two."""

_VALUELESS = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.pattern)

_NAMES = {
    "operand": "expression",
    "elts": "elements",
    "decorator_list": "decorators",
    "context_expr": "item",
    "optional_vars": "asname",
    "comparators": "comparisons",
    "args": "params",
}

_WRAPPERS: dict[type[cst.CSTNode], str] = {
    cst.Element: "value",
    cst.AssignTarget: "target",
    cst.Annotation: "annotation",
    cst.Decorator: "decorator",
    cst.ComparisonTarget: "comparator",
    cst.CompIf: "test",
    cst.AsName: "name",
    cst.From: "item",
}


class Locator:
    """Finds twins in one file; a node's children are matched once, however many of them are asked for."""

    def __init__(self, source: Source, module: cst.Module) -> None:
        self._parents = source.parents
        self._twins: dict[ast.AST, cst.CSTNode] = {source.tree: module}
        self._between: dict[ast.AST, tuple[cst.CSTNode, ...]] = {}

    def find(self, node: ast.AST) -> cst.CSTNode:
        """The twin of ``node``. Raises LookupError for a node of another tree, or one that has no twin."""
        missing = []
        known = node
        while known not in self._twins:
            missing.append(known)
            if known not in self._parents:
                raise LookupError("not a node of this file")
            known = self._parents[known]
        for child in reversed(missing):
            for item, twin, between in _children(known, self._twins[known]):
                self._twins[item] = twin
                self._between[item] = between
            if child not in self._twins:
                raise LookupError(f"{type(child).__name__} cannot be edited")
            known = child
        return self._twins[node]

    def is_virtual(self, node: ast.AST) -> bool:
        """Whether ``node`` has no code of its own, as the tuple of ``x[a, b]``."""
        return node in self._parents and self.find(node) is self.find(self._parents[node])

    def line(self, statement: ast.stmt) -> cst.CSTNode:
        """The line that ``statement`` stands on with its neighbours, or its twin if it is a compound statement."""
        twin = self.find(statement)
        return next((node for node in self._between[statement] if isinstance(node, cst.SimpleStatementLine)), twin)

    def path(self, node: ast.AST) -> Iterator[cst.CSTNode]:
        """Every lossless node that must be rebuilt when ``node`` changes, innermost first."""
        while True:
            yield self._twins[node]
            yield from self._between.get(node, ())
            if node not in self._parents:
                return
            node = self._parents[node]


def _children(node: ast.AST, twin: cst.CSTNode) -> Iterator[Pair]:
    special = _SPECIAL.get(type(node))
    if special is not None:
        yield from special(node, twin)
        return
    for field, value in ast.iter_fields(node):
        yield from _match(value, getattr(twin, _NAMES.get(field, field), None))


def _match(value: Any, twin: Any) -> Iterator[Pair]:
    """Match what stands in one field: a node, a list of them, or something else."""
    if isinstance(value, list):
        if value and isinstance(value[0], ast.stmt):
            yield from _statements(value, twin)
        elif value and isinstance(value[0], ast.AST) and not isinstance(value[0], _VALUELESS) and twin is not None:
            for item, item_twin in zip(value, twin, strict=True):
                yield from _match(item, item_twin)
    elif isinstance(value, ast.AST) and not isinstance(value, _VALUELESS) and isinstance(twin, cst.CSTNode):
        yield value, _unwrap(twin), ()


def _unwrap(twin: cst.CSTNode) -> cst.CSTNode:
    field = _WRAPPERS.get(type(twin))
    if field is None:
        return twin
    unwrapped: cst.CSTNode = getattr(twin, field)
    return unwrapped


def _statements(statements: Sequence[ast.AST], body: cst.CSTNode) -> Iterator[Pair]:
    if isinstance(body, cst.If):  # an elif
        yield statements[0], body, ()
        return
    suite = body.body if isinstance(body, cst.Else | cst.Finally) else body
    twins: list[tuple[cst.CSTNode, tuple[cst.CSTNode, ...]]] = []
    for item in suite.body:  # type: ignore[attr-defined]
        if isinstance(item, cst.SimpleStatementLine):
            twins += [(small, (item,)) for small in item.body]
        else:
            twins.append((item, ()))
    for statement, (twin, between) in zip(statements, twins, strict=True):
        yield statement, twin, between


def _nothing(node: Any, twin: Any) -> Iterator[Pair]:
    yield from ()


def _module(node: ast.Module, twin: cst.Module) -> Iterator[Pair]:
    yield from _statements(node.body, twin)


def _await(node: ast.Await, twin: cst.Await) -> Iterator[Pair]:
    yield node.value, twin.expression, ()


def _yield_from(node: ast.YieldFrom, twin: cst.Yield) -> Iterator[Pair]:
    assert isinstance(twin.value, cst.From)
    yield node.value, twin.value.item, ()


def _bool_op(node: ast.BoolOp, twin: cst.BooleanOperation) -> Iterator[Pair]:
    """``a and b and c`` is one node of three values, but two lossless nodes of two."""
    between: tuple[cst.CSTNode, ...] = ()
    for value in reversed(node.values[1:]):
        yield value, twin.right, between
        if value is node.values[1]:
            yield node.values[0], twin.left, between
            return
        assert isinstance(twin.left, cst.BooleanOperation)
        twin = twin.left
        between = (*between, twin)


def _dict(node: ast.Dict, twin: cst.Dict) -> Iterator[Pair]:
    for key, value, element in zip(node.keys, node.values, twin.elements, strict=True):
        if key is not None and isinstance(element, cst.DictElement):
            yield key, element.key, ()
        yield value, element.value, ()


def _comprehension(node: Any, twin: Any) -> Iterator[Pair]:
    for field in {"elt", "key", "value"} & set(node._fields):
        yield from _match(getattr(node, field), getattr(twin, field))
    clause = twin.for_in
    for generator in node.generators:
        yield generator, clause, ()
        clause = clause.inner_for_in


def _arguments_of(
    args: Sequence[ast.expr], keywords: Sequence[ast.keyword], twins: Sequence[cst.Arg]
) -> Iterator[Pair]:
    positional = [arg for arg in twins if arg.keyword is None and arg.star != "**"]
    named = [arg for arg in twins if not (arg.keyword is None and arg.star != "**")]
    for argument, arg in zip(args, positional, strict=True):
        yield argument, arg if isinstance(argument, ast.Starred) else arg.value, ()
    for keyword, arg in zip(keywords, named, strict=True):
        yield keyword, arg, ()


def _call(node: ast.Call, twin: cst.Call) -> Iterator[Pair]:
    yield node.func, twin.func, ()
    yield from _arguments_of(node.args, node.keywords, twin.args)


def _class(node: ast.ClassDef, twin: cst.ClassDef) -> Iterator[Pair]:
    yield from _match(node.decorator_list, twin.decorators)
    yield from _arguments_of(node.bases, node.keywords, [*twin.bases, *twin.keywords])
    yield from _match(node.body, twin.body)


def _parameters(node: ast.arguments, twin: cst.Parameters) -> Iterator[Pair]:
    positional = [*twin.posonly_params, *twin.params]
    yield from _match([*node.posonlyargs, *node.args], positional)
    for default, param in zip(reversed(node.defaults), reversed(positional), strict=False):
        yield from _match(default, param.default)
    for arg, keyword_default, param in zip(node.kwonlyargs, node.kw_defaults, twin.kwonly_params, strict=True):
        yield arg, param, ()
        yield from _match(keyword_default, param.default)
    yield from _match(node.vararg, twin.star_arg)
    yield from _match(node.kwarg, twin.star_kwarg)


def _subscript(node: ast.Subscript, twin: cst.Subscript) -> Iterator[Pair]:
    yield node.value, twin.value, ()
    first = twin.slice[0]
    starred = isinstance(first.slice, cst.Index) and bool(first.slice.star)  # x[*a] is a tuple, too
    separated = isinstance(node.slice, ast.Tuple) and (len(twin.slice) > 1 or isinstance(first.comma, cst.Comma))
    yield node.slice, twin if starred or separated else _slice(first), ()


def _slice(element: cst.SubscriptElement) -> cst.CSTNode:
    if isinstance(element.slice, cst.Index) and not element.slice.star:
        return element.slice.value
    return element.slice


def _tuple(node: ast.Tuple, twin: cst.Tuple | cst.Subscript) -> Iterator[Pair]:
    if isinstance(twin, cst.Subscript):
        yield from _match(node.elts, [_slice(element) for element in twin.slice])
    else:
        yield from _match(node.elts, twin.elements)


def _delete(node: ast.Delete, twin: cst.Del) -> Iterator[Pair]:
    if isinstance(twin.target, cst.Tuple) and not twin.target.lpar:
        for target, element in zip(node.targets, twin.target.elements, strict=True):
            yield target, element.value, (twin.target,)
    else:
        yield node.targets[0], twin.target, ()


def _joined(node: ast.JoinedStr, twin: cst.CSTNode) -> Iterator[Pair]:
    """Match the expressions of an f-string (its pieces may be concatenated) or of a format specification."""
    fields = _fields(twin, ())
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            field, between = next(fields)
            yield value, field, between


def _fields(twin: cst.CSTNode, between: tuple[cst.CSTNode, ...]) -> Iterator[Field]:
    if isinstance(twin, cst.ConcatenatedString):
        for side in (twin.left, twin.right):
            yield from _fields(side, (*between, side))
        return
    parts: Sequence[cst.CSTNode] = ()
    if isinstance(twin, cst.FormattedString):
        parts = twin.parts
    elif isinstance(twin, cst.FormattedStringExpression):
        parts = twin.format_spec or ()
    for part in parts:
        if isinstance(part, cst.FormattedStringExpression):
            yield part, between


def _formatted(node: ast.FormattedValue, twin: cst.FormattedStringExpression) -> Iterator[Pair]:
    yield node.value, twin.expression, ()
    if node.format_spec is not None:
        yield node.format_spec, twin, ()


def _match_case(node: ast.match_case, twin: cst.MatchCase) -> Iterator[Pair]:
    yield from chain(_match(node.guard, twin.guard), _match(node.body, twin.body))


_SPECIAL: dict[type[ast.AST], Callable[[Any, Any], Iterator[Pair]]] = {
    ast.Module: _module,
    ast.Import: _nothing,
    ast.ImportFrom: _nothing,
    ast.Await: _await,
    ast.YieldFrom: _yield_from,
    ast.BoolOp: _bool_op,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.Call: _call,
    ast.ClassDef: _class,
    ast.arguments: _parameters,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.Delete: _delete,
    ast.JoinedStr: _joined,
    ast.FormattedValue: _formatted,
    ast.match_case: _match_case,
}
