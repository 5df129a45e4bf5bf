"""Which values are whole numbers: of these, `int(x)` says of a sum over the ranks what it says of each of its parts. A
subscript takes samples by them, and leaves out others by a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autodist.program import BATCH, FIELDS, Operation, Program, Value, closure, held
from autodist.program.values import Constant

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
CLASSES = frozenset("argmax argmin".split())
"""Last parts of the names of operations that give each sample the number of a class."""
CASTS = frozenset("byte int long short".split())
MASKS = frozenset(
    "bool isin isnan isfinite isinf logical_and logical_not logical_or logical_xor not_ bernoulli".split()
)
HELD = (BATCH, FIELDS, "getitem", "iterate")
"""Names of what gives a field of a batch."""
LABELLED = {
    "cross_entropy": 1,
    "nll_loss": 1,
    "CrossEntropyLoss": 1,
    "NLLLoss": 1,
    "gather": 2,
    "take_along_dim": 1,
} | {
    "one_hot": 0,
    "embedding": 0,
    "Embedding": 0,
}
"""At which place functions take numbers of classes, by the last parts of their names."""
PLACES = ("arange", "range.index", "nonzero", "cumsum", "randperm", "permutation", "argsort", "builtins.len", "where")
"""Ends of the names of what tells numbers or places of a batch."""


class WholeNumbers:
    """What gives whole numbers, as far as names tell."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[Operation, bool] = {}

    def are(self, value: Value) -> bool:
        """Whether a value is a whole number, or holds such."""
        told = all(
            isinstance(each, int) or isinstance(each, float) and each.is_integer() for _, each in value.constants
        )
        parted = any(isinstance(each, float) and not each.is_integer() for _, each in _numbers_in(value))
        return told and not parted and bool(value) and all(map(self._gives, held(value)))

    def _gives(self, operation: Operation) -> bool:
        if operation not in self._known:
            self._known[operation] = True  # what goes round a loop is as whole as what comes into it
            self._known[operation] = self._is_whole(operation)
        return self._known[operation]

    def _is_whole(self, operation: Operation) -> bool:
        known = operation.known
        names = {operation.name, operation.name.rpartition(".")[2].rstrip("_")}
        if names & MAKING or known is not None and (known.cls in COUNTING or known.parameters.get("compares")):
            return True
        moves = known is not None and (known.cls in MOVING or known.cls == "reduction" and known.kind in SUMMING)
        both = known is not None and known.cls in ("add", "multiply")
        given = operation.inputs if both or not operation.name.startswith(OF_FIRST) else operation.inputs[:1]
        return bool(moves or names & KEEPING) and bool(given) and all(map(self.are, given))

    def are_of_samples(self, value: Value) -> bool:
        """Whether a value is numbers that samples hold themselves, as of their classes, or that are computed of each:
        no marks, and no places that are counted within a batch."""
        found = closure(held(value), lambda op: (e for v in self._moved(op) for e in held(v)))
        ends = [each for each in found if not any(any(held(v)) for v in self._moved(each))]
        return bool(ends) and self._are_no_marks(held(value)) and all(map(self._numbers_classes, ends))

    def _moved(self, operation: Operation) -> tuple[Value, ...]:
        """What an operation computes numbers of, up to what gives samples such."""
        known = operation.known
        short = operation.name.rpartition(".")[2]
        if short in CLASSES | CASTS or known is None or known.cls not in MOVING or operation.name in HELD:
            return ()
        return operation.inputs if known.cls in ("add", "multiply") else operation.inputs[:1]

    def _numbers_classes(self, operation: Operation) -> bool:
        """Whether it gives each sample a number of its own."""
        short = operation.name.rpartition(".")[2]
        if short in CASTS:
            return not self._counts(operation)
        if short in CLASSES or self._is_label(operation):
            return True
        return operation.name == BATCH and self._are_no_marks([operation]) and self.are(Value(frozenset([operation])))

    def _counts(self, operation: Operation) -> bool:
        """Whether it is computed of how many there are, or of their places."""
        found = closure([operation], lambda op: (e for v in op.operands for e in held(v)))
        return any(each.name.endswith(PLACES) for each in found)

    def _are_no_marks(self, given: Iterable[Operation]) -> bool:
        """Whether nothing tells that they are true or false."""
        found = closure(given, lambda op: (e for v in op.inputs[:1] for e in held(v)) if self._keeps(op) else ())
        return not any(self._marks(each) for each in found)

    def _keeps(self, operation: Operation) -> bool:
        known = operation.known
        short = operation.name.rpartition(".")[2]
        moves = known is not None and known.cls in MOVING or bool({operation.name, short} & KEEPING)
        return moves and short not in CASTS

    def _marks(self, operation: Operation) -> bool:
        known = operation.known
        short = operation.name.rpartition(".")[2].rstrip("_")
        listed = any(kind is bool for value in operation.inputs[:1] for kind, _ in _numbers_in(value))
        return (
            short in MASKS
            or listed
            or "bool" in _types(operation)
            or known is not None
            and bool(known.parameters.get("compares"))
        )

    def _is_label(self, operation: Operation) -> bool:
        """Whether something takes it for numbers of classes: `F.cross_entropy(out, y)`, `F.one_hot(y)`."""
        same = closure([operation], lambda op: filter(self._is_moved, self._program.users[op]))
        return any(self._takes_label(user, each) for each in same for user in self._program.users[each])

    def _is_moved(self, operation: Operation) -> bool:
        keys = operation.inputs[1:] if operation.name == "getitem" else ()
        inner = [part for key in keys for each in key.things for part in getattr(each, "parts", None) or ()]
        known = operation.known
        anew = any(each.constant is None and each.constants for each in (*keys, *inner))  # `y[:, None]`
        return anew or known is not None and known.cls in ("same", "unsqueeze", "squeeze", "view", "flatten")

    @staticmethod
    def _takes_label(user: Operation, number: Operation) -> bool:
        place = LABELLED.get(user.name.rpartition(".")[2])
        given = user.inputs[place : place + 1] if place is not None else ()
        told = [user.keywords[each] for each in ("target", "index") if place and each in user.keywords]
        return any(number in each.operations for each in (*given, *told))


def _types(operation: Operation) -> set[str]:
    """The types of numbers that it is told: `bool` of `x.to(torch.bool)`"""
    things = [*operation.inputs[1:], *(v for name, v in operation.keywords.items() if name == "dtype")]
    return {str(getattr(each, "name", "")).rpartition(".")[2].rstrip("_") for value in things for each in value.things}


def _numbers_in(value: Value) -> Iterator[Constant]:
    """The constants that it may be, or that lists hold which it may be."""
    pending, seen = [value], set[object]()
    while pending:
        each = pending.pop()
        yield from each.constants
        for one in each.things - seen:
            seen.add(one)
            pending.extend(getattr(one, "contents", tuple)())
