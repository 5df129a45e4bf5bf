"""Batches that a `collate_fn` lays out by fixed numbers, such as few-shot episodes: so many samples of so many classes.

`images.reshape((self.n_way, self.n_shot + self.n_query, *images.shape[1:]))` holds for the whole batch alone: a rank's
share has other samples of fewer classes.
"""

from __future__ import annotations

import ast

from autodist.collation import Kind, Reading, Rows, sole
from autodist.source import Source, last_name
from autodist.values import Function, Value

RESHAPING = frozenset(["reshape", "view"])
COUNTING = frozenset("len size shape".split())


def laid_out_by_number(collate: Value) -> tuple[Source, ast.Call] | None:
    """Where a `collate_fn` takes its samples apart into a fixed number of groups."""
    function = sole(collate)
    if function is None:
        return None
    reading = _Groups(function)
    reading.given([Rows.EACH])
    return (function.source, reading.groups) if reading.groups is not None else None


class _Groups(Reading):
    """Notes where samples are grouped."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, {})
        self.groups: ast.Call | None = None

    def kind(self, node: ast.expr) -> Kind:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RESHAPING:
            sizes = node.args[0].elts if node.args and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
            whole = isinstance(self.kind(node.func.value), Rows)
            if whole and len(sizes) > 1 and self._is_fixed(sizes[0]):
                self.groups = self.groups or node
        return super().kind(node)

    def _is_fixed(self, size: ast.expr) -> bool:
        """Whether a size is a setting, rather than -1, a number of the samples at hand, or the size of a batch, which
        is divided elsewhere."""
        if "batch" in ast.unparse(size).lower():
            return False
        if isinstance(size, ast.Constant):
            return isinstance(size.value, int) and size.value > 1
        if isinstance(size, ast.Name):
            inside = list(ast.walk(self.function.node))
            if size.id in self.names or any(isinstance(each, ast.arg) and each.arg == size.id for each in inside):
                return False
            bound = any(isinstance(n, ast.Name) and n.id == size.id and isinstance(n.ctx, ast.Store) for n in inside)
            made = [
                each.value
                for each in inside
                if isinstance(each, ast.Assign) and any(getattr(t, "id", "") == size.id for t in each.targets)
            ]
            parts = [each for value in made for each in ast.walk(value)]
            counts = any(
                last_name(each) in COUNTING or isinstance(each, ast.Name) and each.id in self.names for each in parts
            )
            return not counts if made else not bound  # a setting of the module's
        return isinstance(size, ast.Attribute) and isinstance(size.value, ast.Name) and size.value.id == "self"
