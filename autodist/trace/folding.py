"""What operators make of constants, and which way a test goes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autodist.program import UNKNOWN, Operation, Value, constant, joined
from autodist.trace.things import External, Method, Object

NAMES: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.BitAnd: "and_",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.Not: "not_",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "contains",
    ast.NotIn: "contains",
}
"""The functions of `operator` that operators stand for."""
METHODS: Mapping[type[ast.AST], str] = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.Mod: "__mod__",
    ast.MatMult: "__matmul__",
    ast.Pow: "__pow__",
    ast.USub: "__neg__",
    ast.Eq: "__eq__",
    ast.Lt: "__lt__",
    ast.Gt: "__gt__",
    ast.LtE: "__le__",
    ast.GtE: "__ge__",
}
FOLDED = (bool, int, float, str, bytes, type(None), tuple)
UNSIZED = ("builtins.object", "builtins.Exception", "abc.ABC")
"""Classes of Python that have neither `__len__` nor `__bool__`."""
LONGEST = 10_000


def folded(op: ast.AST, *given: Value) -> object:
    """The constant that an operator makes of constants, or UNKNOWN."""
    constants = [each.constant for each in given]
    if any(each is UNKNOWN or not isinstance(each, FOLDED) for each in constants):
        return UNKNOWN
    function: Callable[..., Any] = getattr(operator, NAMES[type(op)])
    if isinstance(op, (ast.In, ast.NotIn)):
        constants.reverse()
    if isinstance(op, (ast.Pow, ast.LShift, ast.Mult)) and any(_is_large(each) for each in constants):
        return UNKNOWN
    try:
        result = function(*constants)
    except Exception:  # as the script would fail there
        return UNKNOWN
    if isinstance(op, ast.NotIn):
        result = not result
    return result if isinstance(result, FOLDED) else UNKNOWN


def folded_texts(op: ast.AST, left: Value, right: Value) -> Value | None:
    """The texts that are made of some texts: `"x_" + split`"""
    parts = [
        [each for _, each in value.constants if isinstance(each, str)]
        for value in (left, right)
        if not (value.operations or value.things) and all(type_ is str for type_, _ in value.constants)
    ]
    if not isinstance(op, ast.Add) or len(parts) != 2:
        return None
    return joined(constant(one + other) for one in parts[0] for other in parts[1]) or None


def _is_large(constant: object) -> bool:
    if isinstance(constant, (int, float)):
        return abs(constant) > LONGEST
    return isinstance(constant, (str, bytes, tuple)) and len(constant) > LONGEST


def truth(value: Value) -> bool | None:
    """Whether a value counts as true, if that is known."""
    found = {bool(each[1]) if each[1] != "any" else None for each in value.constants}
    found |= {True if _is_true(each) else None for each in value.things}
    found |= {None for _ in value.operations}
    return found.pop() if len(found) == 1 else None


def _is_true(thing: object) -> bool:
    """Functions, classes and objects count as true; of containers, of instances with `__len__`, and of what other
    libraries than torch make it is not known."""
    if isinstance(thing, Object):
        told = all(each in UNSIZED or each.startswith("torch.") for each in thing.library_names)
        return told and (thing.cls is None or not (thing.cls.find("__len__") or thing.cls.find("__bool__")))
    return not hasattr(thing, "element") and not _is_unread(thing)


def _is_unread(thing: object) -> bool:
    """Whether it is an attribute that a library has, or gives its objects: a method, a setting or a state."""
    if isinstance(thing, External):
        return "." in thing.name
    return isinstance(thing, Method) and isinstance(thing.function, str) and isinstance(thing.owner, Object)


def identity(left: Value, right: Value) -> bool | None:
    """Whether one is None where the other is, `x is None`, if that is known."""
    for one, other in ((left, right), (right, left)):
        if other.is_constant and other.constant is None:
            maybe: set[bool | None] = {each == (type(None), None) for each in one.constants}
            maybe |= {None if _is_unread(each) else False for each in one.things}
            maybe |= {False if _is_surely_tensor(each) else None for each in one.operations}
            return maybe.pop() if len(maybe) == 1 else None
    if left.is_constant and right.is_constant:
        return bool(left.constant is right.constant or left.constant == right.constant)
    return None


def _is_surely_tensor(operation: Operation) -> bool:
    """Whether it gives a tensor or an array, and never None: what is drawn, filled or computed."""
    known = operation.known if operation.is_tensor else None
    return known is not None and known.cls not in ("fact", "mutation")


def without_none(value: Value) -> Value:
    """A value that is known not to be None."""
    kept = value.constants - {(type(None), None)}
    return replace(value, constants=kept) if kept != value.constants else value
