"""Tensors of no axes, which FSDP cannot take a share of."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter
from autodist.values import NOTHING, External, Object

FILLED = frozenset("zeros ones rand randn empty full".split())
"""What makes a tensor of the shape it is told first."""
MATHS = ("math.", "numpy.")


def is_scalar_parameter(parameter: Object, run: Interpreter) -> bool:
    """`nn.Parameter(torch.ones([]) * np.log(1 / 0.07))`"""
    data = parameter.node.args[0] if parameter.node.args else None
    data = data or next((k.value for k in parameter.node.keywords if k.arg == "data"), None)
    return data is not None and _is_scalar(data, run)


def _is_scalar(node: ast.expr, run: Interpreter) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_scalar(node.operand, run)
    if isinstance(node, ast.BinOp):
        pair = (node.left, node.right)
        return any(_is_scalar(each, run) for each in pair) and all(
            _is_scalar(each, run) or _is_number(each, run) for each in pair
        )
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func, run)
    if name is None and isinstance(node.func, ast.Attribute):  # torch.tensor(0.07).log()
        return _is_scalar(node.func.value, run) and all(_is_number(each, run) for each in node.args)
    owner, _, function = (name or "").rpartition(".")
    if owner != "torch":
        return False
    if function in FILLED:
        shape = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "size"), None)
        return isinstance(shape, (ast.List, ast.Tuple)) and not shape.elts
    return function in ("tensor", "as_tensor", "scalar_tensor") and bool(node.args) and _is_number(node.args[0], run)


def _is_number(node: ast.expr, run: Interpreter) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand, run)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left, run) and _is_number(node.right, run)
    if isinstance(node, ast.Call):
        name = _name(node.func, run) or (node.func.id if isinstance(node.func, ast.Name) else "")
        known = name in ("float", "int") or name.startswith(MATHS)
        return known and all(_is_number(each, run) for each in node.args)
    const = node.value if isinstance(node, ast.Constant) else run.values.get(node, NOTHING).const
    return isinstance(const, (int, float))


def _name(node: ast.expr, run: Interpreter) -> str | None:
    """What a library calls it."""
    return next((t.name for t in run.values.get(node, NOTHING).things if isinstance(t, External)), None)
