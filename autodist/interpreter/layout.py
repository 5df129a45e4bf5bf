"""Which axis the samples of a batch lie along, once axes were exchanged, and products that go along it."""

from __future__ import annotations

import ast

from autodist.interpreter.questions import last_part, literal_int
from autodist.interpreter.widths import Widths
from autodist.source import operands
from autodist.spread import COLUMNS, ROWS
from autodist.tensors import axes
from autodist.values import Object

PRODUCTS = frozenset("matmul bmm".split())
ATTENTION = "scaled_dot_product_attention"
SPATIAL = ("Conv", "AvgPool", "MaxPool")


class Layout(Widths):
    """Where samples lie, as far as the numbers of axes are known."""

    def _goes_along_samples(self, node: ast.expr) -> bool:
        """Whether samples of a batch meet each other in a product of matrices, `q @ k.transpose(1, 2)` of tensors whose
        second axis of three is that of the samples, or in a layer that goes along another axis than the first."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._is_matrix_of_samples(node.left, node.right)
        if not isinstance(node, ast.Call):
            return False
        layers = [t for t in self._lately(node.func).things if isinstance(t, Object)]
        if layers:
            spatial = all(t.name.startswith("torch.nn.") and t.name.split(".")[-1].startswith(SPATIAL) for t in layers)
            return spatial and len(node.args) == 1 and bool(self._sample_axis(node.args[0]))
        given = [each for each in operands(node) if self._lately(each).spread.is_local]
        name = last_part(node.func)
        if name not in PRODUCTS | {ATTENTION} or len(given) < 2:
            return False
        return self._is_matrix_of_samples(given[0], given[1])

    def _is_matrix_of_samples(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether one of the two last axes, which make up matrices, is that of the samples."""
        sides = [self._lately(each) for each in (left, right)]
        if any(each.spread not in (ROWS, COLUMNS) or each.things for each in sides):
            return False
        at, count = self._sample_axis(left), self._axes_of(left)
        return bool(at) and count is not None and count > 2 and at is not None and at >= count - 2

    def _sample_axis(self, node: ast.expr, depth: int = 12) -> int | None:
        """The number of the axis that samples lie along; None if it cannot be read."""
        value = self._lately(node)
        if value.spread is ROWS or not depth or value.things:
            return 0 if value.spread is ROWS and not value.things else None
        if value.spread is not COLUMNS:
            return None
        if isinstance(node, (ast.Name, ast.Attribute)):
            if isinstance(node, ast.Attribute) and node.attr == "T" and self._axes_of(node.value) == 2:
                return 1
            return self._agreed([each for _, each in value.made if each is not node], depth)
        if isinstance(node, ast.BinOp):
            sides = [node.left] if isinstance(node.op, ast.MatMult) else [node.left, node.right]
            whole = [each for each in sides if self._lately(each).axes == value.axes]
            return self._agreed([each for each in whole if self._lately(each).spread is COLUMNS], depth)
        return self._after_call(node, depth - 1) if isinstance(node, ast.Call) else None

    def _agreed(self, nodes: list[ast.expr], depth: int) -> int | None:
        found = {self._sample_axis(each, depth - 1) for each in nodes}
        return found.pop() if len(found) == 1 else None

    def _after_call(self, node: ast.Call, depth: int) -> int | None:
        name = last_part(node.func)
        made = [each for _, each in self._lately(node).made if each is not node]
        layers = [t for t in self._lately(node.func).things if isinstance(t, Object)]
        given = operands(node)[0] if layers == [] and operands(node) else node.args[0] if node.args else None
        if layers:
            keeps = all(t.cls is None and t.name.split(".")[-1] in axes.KEEPING for t in layers)
            return self._sample_axis(given, depth) if keeps and given is not None else self._agreed(made, depth)
        if isinstance(node.func, ast.Attribute) and last_part(node.func.value) in axes.MODULES:
            given, rest = (node.args[0] if node.args else None), node.args[1:]
        else:
            rest = list(node.args)
        before = self._sample_axis(given, depth) if given is not None else None
        count = self._axes_of(given) if given is not None else None
        if before is None or count is None:
            return self._agreed(made, depth) if made else None
        sizes = rest[0].elts if len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List)) else rest
        numbers = [_number(each) for each in sizes]
        if name in ("transpose", "swapaxes") and len(numbers) == 2 and None not in numbers:
            first, second = (each % count for each in numbers if each is not None)
            return {first: second, second: first}.get(before, before)
        if name == "permute" and None not in numbers and len(numbers) == count:
            return [each % count for each in numbers if each is not None].index(before)
        if name == "t" and count == 2:
            return 1 - before
        if name == "unsqueeze" and len(numbers) == 1 and numbers[0] is not None:
            return before + (numbers[0] % (count + 1) <= before)
        if name in PRODUCTS | axes.ALIKE - {"transpose", "swapaxes", "t"} | {ATTENTION}:
            return before
        return None


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_int(node.operand)
        return None if inner is None else -inner
    return literal_int(node)
