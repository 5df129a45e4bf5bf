"""What a call names: a function of a library, layers of one, or code of the project; and the numbers it is told."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autodist.source import argument
from autodist.tensors.facts import ALIKE, APPLYING, CREATING, ELEMENTWISE, FACTORIES
from autodist.tensors.operations import IN_PLACE
from autodist.values import Class, External, Function, Object, Value, Wrapped

Latest = Callable[[ast.expr], Value]


def makes_tensor(node: ast.Call) -> bool:
    """`torch.zeros(1, n, size)`, `weight.new_zeros(1, n, size)`"""
    return called_name(node) in FACTORIES


def is_entered(node: ast.Call, latest: Latest) -> bool:
    """Whether a call runs code of the project, which is followed by itself."""
    applied = any(isinstance(t, External) and t.name in APPLYING for t in latest(node.func).things)
    called = node.args[0] if applied and node.args else node.func
    things = [t.module if isinstance(t, Wrapped) else t for t in latest(called).things]
    return any(isinstance(t, (Function, Class)) or isinstance(t, Object) and t.cls is not None for t in things)


def called_name(node: ast.Call) -> str:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return IN_PLACE.get(name, name)


def library(node: ast.Call, latest: Latest) -> str | None:
    """The qualified name of the library function that a call names."""
    names = sorted(t.name for t in latest(node.func).things if isinstance(t, External))
    if len(names) == 1:
        return names[0]
    if not names and isinstance(node.func, ast.Attribute):
        owners = [t.name for t in latest(node.func.value).things if isinstance(t, Object) and "generator" in t.roles]
        names = [f"{name}.{node.func.attr}" for name in owners if name.startswith("numpy")]
    # one activation or another, one loss or another
    shorts = {name.rpartition(".")[2] for name in names if name.startswith("torch.")}
    alike = len(shorts) == len(names) and any(shorts <= kind for kind in (ELEMENTWISE - CREATING, ALIKE))
    return names[0] if len(names) == 1 or names and alike else None


@dataclass(frozen=True)
class Placement:
    """Rows that are written into something by their numbers."""

    target: ast.expr
    numbers: Sequence[ast.expr]
    """One for each axis that is not taken whole, the first of which is that of the rows."""
    rows: ast.expr


def placed_by_number(call: ast.Call) -> Placement | None:
    """What a call writes rows into, along its first axis, where it adds to none: `scores.index_copy_(0, numbers,
    found)`, `np.put(scores, numbers, found)`."""
    if not isinstance(call.func, ast.Attribute) or adds_up(call) or len(call.args) < 2:
        return None
    name, target, given = call.func.attr, call.func.value, call.args
    if name == "put" and ast.unparse(target) in ("np", "numpy") and len(given) > 2:
        return Placement(given[0], given[1:2], given[2])
    if name in ("index_put_", "put_"):
        numbers = given[0].elts if isinstance(given[0], (ast.Tuple, ast.List)) else [given[0]]
        return Placement(target, numbers, given[1])
    if name not in ("index_copy_", "index_fill_", "scatter_") or len(given) < 3 or number_of(given[0]) != 0:
        return None
    return Placement(target, given[1:2], given[2]) if not call.keywords else None


def adds_up(call: ast.Call) -> bool:
    """Whether a method of a tensor adds to what it has at some places, also several times at the same."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in ("index_put_", "put_"):
        added = argument(call, "accumulate", 2)
        return isinstance(added, ast.Constant) and added.value is True
    if method in ("scatter_reduce_", "index_reduce_"):
        way = argument(call, "reduce", 3)
        return isinstance(way, ast.Constant) and way.value in ("sum", "add")
    return method in ("index_add_", "scatter_add_")


def layers_of(node: ast.Call, latest: Latest) -> list[Object]:
    """The modules of a library that may be called, as `criterion` is one loss or another."""
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in ("forward", "__call__") and not latest(called).things:
        called = called.value  # `model.forward(x)`
    things = [t.module if isinstance(t, Wrapped) else t for t in latest(called).things]
    found = [each for each in things if isinstance(each, Object) and each.cls is None]
    found.sort(key=lambda layer: (layer.name, layer.node.lineno, layer.node.col_offset))
    return found if len(found) == len(things) else []


def size_asked(node: ast.expr | None) -> ast.expr | None:
    """The tensor in `x.size()`, `x.shape`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        return node.func.value if not node.args else None
    return None


def parts_inside(layer: Object) -> list[Object]:
    """The parts of a container of layers."""
    found: list[Object] = []
    for value in layer.args:
        for thing in value.things:
            if isinstance(thing, Object):
                found.append(thing)
    return found


def shape_asked(node: ast.Call) -> Sequence[ast.expr]:
    """The shape that a call asks for: `torch.zeros(n, 4)`, `torch.zeros(size=(n, 4))`"""
    return node.args or [keyword.value for keyword in node.keywords if keyword.arg in ("size", "shape")]


def is_list(rest: Sequence[ast.expr]) -> bool:
    return len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List))


def number_of(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def axis_of(node: ast.Call, rest: Sequence[ast.expr], names: tuple[str, ...] = ("dim", "axis")) -> int | None:
    """The axis that a call names, by position or keyword."""
    for keyword in node.keywords:
        if keyword.arg in names:
            return number_of(keyword.value)
    return number_of(rest[0]) if rest else None
