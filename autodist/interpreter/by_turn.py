"""Loops over samples: which of them a value comes from, or all of them."""

from __future__ import annotations

import ast

from autodist.interpreter.machine import Machine
from autodist.source import all_of, walk
from autodist.values import Index, Turn, Value


class ByTurn(Machine):
    """Questions about the loops over samples that are being run."""

    def is_by_turn(self, value: Value) -> bool:
        """Whether it is computed from the samples that a loop has come to that goes on."""
        if not value.origins:
            return False
        loops = {loop.node for loop in self._loops}
        return any(isinstance(each, Turn) and each.loop in loops for each in value.origins)

    def is_one_row(self, value: Value) -> bool:
        """Whether it is one sample of a rank's, without the axis of the batch."""
        turns = [each for each in value.origins if isinstance(each, Turn)]
        return bool(turns) and not any(each.batch for each in turns) and self.is_by_turn(value)

    def _turns(self, axis: ast.expr) -> frozenset[Turn]:
        """The loops over a batch, sample by sample, whose running number an index is, or a slice is computed from."""
        if not isinstance(axis, (ast.Name, ast.Slice)):
            return frozenset()  # `out[i - 1]` is another one
        parts = all_of(axis, ast.expr)
        numbers = {t.loop for part in parts for t in self._lately(part).things if isinstance(t, Index)}
        certain = (loop.through for loop in self._loops if numbers and loop.certain)
        loops = (through for through in certain if through is not None)
        cut = isinstance(axis, ast.Slice)
        return frozenset(Turn(loop, cut) for loop in loops if numbers & set(walk(loop.iter)))
