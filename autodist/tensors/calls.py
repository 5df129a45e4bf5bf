"""What a call names: a function of a library, layers of one, or code of the project; and the numbers it is told."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autodist.source import argument
from autodist.tensors.facts import ALIKE, APPLYING, CREATING, ELEMENTWISE
from autodist.tensors.operations import IN_PLACE
from autodist.values import Class, External, Function, Object, Value, Wrapped

Latest = Callable[[ast.expr], Value]


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


def is_list(rest: Sequence[ast.expr]) -> bool:
    return len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List))


def number_of(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def is_zero(node: ast.expr, values: Mapping[ast.expr, Value]) -> bool:
    """`torch.zeros(3)`, `np.zeros(3)`, `torch.tensor(0.0)`, also once it is moved to a device, `[0] * 3`, and the items
    of such, and `0.9 * total` as long as there is nothing of it."""
    if isinstance(node, ast.Subscript):
        return values[node.value].zero if node.value in values else False
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        parts = (node.left, node.right) if isinstance(node.op, ast.Mult) else (node.left,)
        held = [values[each] for each in parts if each in values]
        if any(each.zero or each.const == 0 and each.const is not False for each in held):
            return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        return all(isinstance(each, ast.Constant) and each.value == 0 for each in node.left.elts)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name = node.func.attr
    if name in ("zeros", "zeros_like", "new_zeros"):
        return True
    if name == "tensor":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    if name in ("to", "cuda", "cpu", "float", "double", "long", "int", "clone", "detach"):
        base = values.get(node.func.value)
        return base is not None and base.zero
    return False


def counted_off(index: ast.expr, latest: Latest) -> ast.Call | None:
    """The call that counts off what an index goes through: `range(n)`, `torch.arange(n)`, also as a list, on a device,
    or by a name."""
    if isinstance(index, ast.Name):
        made = [each for _, each in latest(index).made if each is not index]
        index = made[0] if len(made) == 1 else index
    if not isinstance(index, ast.Call):
        return None
    name = called_name(index)
    if name in ("range", "arange"):
        return index
    if name in ("list", "tensor", "LongTensor", "as_tensor", "array") and len(index.args) >= 1:
        return counted_off(index.args[0], latest)
    moved = isinstance(index.func, ast.Attribute) and name in ("to", "cuda", "cpu", "long", "int", "type", "type_as")
    return counted_off(index.func.value, latest) if moved and isinstance(index.func, ast.Attribute) else None
