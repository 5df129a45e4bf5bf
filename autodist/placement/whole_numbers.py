"""Which values are whole numbers: of these, `int(x)` says of a sum over the ranks what it says of each of its parts."""

from __future__ import annotations

from autodist.operations import Table
from autodist.program import Operation, Value, held

MAKING = frozenset(
    "argmax argmin argsort bincount builtins.int builtins.round builtins.len ceil count_nonzero floor int long "
    "nonzero numel randint range.index randperm round sign topk_indices trunc".split()
)
"""Last parts of the names, or names, of operations that give whole numbers of any."""
KEEPING = frozenset(
    "abs and_ bitwise_and bitwise_or clamp cumsum floordiv iterate getitem item loader.batch logical_and logical_not "
    "logical_or max maximum min minimum mod neg not_ or_ pos sample setitem torch.tensor where xor".split()
)
"""Those that give whole numbers of whole numbers."""
COUNTING = frozenset("length histogram places".split())
MOVING = frozenset(
    "same add multiply index gather select repeat_each filter concatenate stack permute transpose movedim view view_as "
    "flatten unflatten squeeze unsqueeze expand repeat container sort scatter".split()
)
"""Classes of operations that add, multiply or move numbers."""
SUMMING = frozenset("sum max min".split())
OF_FIRST = ("torch.Tensor.", "numpy.ndarray.", "getitem", "iterate")
"""Beginnings of the names of what is given places or axes beside numbers."""


class WholeNumbers:
    """What gives whole numbers, as far as names tell."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[Operation, bool] = {}

    def are(self, value: Value) -> bool:
        """Whether a value is a whole number, or holds such."""
        told = all(
            isinstance(each, int) or isinstance(each, float) and each.is_integer() for _, each in value.constants
        )
        return told and bool(value) and all(map(self._gives, held(value)))

    def _gives(self, operation: Operation) -> bool:
        if operation not in self._known:
            self._known[operation] = True  # what goes round a loop is as whole as what comes into it
            self._known[operation] = self._is_whole(operation)
        return self._known[operation]

    def _is_whole(self, operation: Operation) -> bool:
        known = self._table.find(operation.name)
        names = {operation.name, operation.name.rpartition(".")[2].rstrip("_")}
        if names & MAKING or known is not None and (known.cls in COUNTING or known.parameters.get("compares")):
            return True
        moves = known is not None and (known.cls in MOVING or known.cls == "reduction" and known.kind in SUMMING)
        both = known is not None and known.cls in ("add", "multiply")
        given = operation.inputs if both or not operation.name.startswith(OF_FIRST) else operation.inputs[:1]
        return bool(moves or names & KEEPING) and bool(given) and all(map(self.are, given))
