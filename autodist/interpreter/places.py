"""Samples that are taken by their numbers, and tensors that are taken apart by numbers."""

from __future__ import annotations

import ast

from autodist.interpreter.attributes import Attributes
from autodist.interpreter.questions import last_part, literal_int
from autodist.spread import ROWS
from autodist.values import Turn, Value


class Places(Attributes):
    """Which places of the first axis an index names."""

    def _placed(self, axis: ast.expr, base: Value) -> frozenset[Turn]:
        """The samples of a rank that an index on the first axis takes, if loops have come to them."""
        if base.spread is not ROWS or base.things or self.is_by_turn(base):
            return frozenset()
        return self._turns(axis)

    def _with_rows_second(self, node: ast.Call, result: Value) -> bool:
        """`out.view(2, -1, 3)`: as many parts as the number says, each of which has its share of the samples."""
        if last_part(node.func) not in ("view", "reshape") or result.spread is not ROWS:
            return False
        sizes = node.args[isinstance(node.func, ast.Attribute) and self._lately(node.func.value).spread is not ROWS :]
        sizes = list(sizes[0].elts) if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)) else sizes
        first = literal_int(sizes[0]) if len(sizes) > 1 else None
        if first is not None and first > 1 and self._takes_apart(node, sizes):
            return False
        if first is None or any(isinstance(each, Turn) for each in result.origins):
            return False
        if first == 1:  # `labels.view(1, -1)`
            return ast.unparse(sizes[1]) == "-1"
        return first > 1 and not self.is_batch_size(sizes[0])

    def _takes_apart(self, node: ast.Call, sizes: list[ast.expr]) -> bool:
        """`x.view(5, -1, 8)` of sequences, as many axes as before: what is taken for time begins within samples."""
        held = node.func.value if isinstance(node.func, ast.Attribute) else None
        before = self._axes_of(held) if held is not None else None
        parts = before is not None and 2 < len(sizes) <= before and not self.is_batch_size(sizes[0])
        return parts and self._lately(held).spread is ROWS and ast.unparse(sizes[1]) == "-1"  # type: ignore[arg-type]
