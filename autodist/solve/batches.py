"""Batches that a step makes by hand: a number of samples that it draws, or a slice of the data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from autodist.catalog import RANDOM_ROLES, Catalog
from autodist.placement import arguments
from autodist.program import Operation, Program, Value, constant, held
from autodist.solve import sizes
from autodist.solve.steps import Steps, all_held

DISTRIBUTIONS, SAMPLES = "torch.distributions.", ("sample", "sample_n")
SINGLE = ("random.randrange", "random.randint")
"""What draws one number of a sample."""
ROUNDS = ("range.index", "iterate")
"""What gives something else in each round of a loop."""
SPLITS = ("batched", "split", "array_split", "chunk", "tensor_split")


class Batches(Steps):
    """Where a step makes its batch."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        super().__init__(program)
        self._catalog = catalog

    def made_by_hand(self) -> dict[Operation, list[Value]]:
        """What makes the batch of a step, and how many samples it may give. Noise is one where nothing chooses any."""
        noise = [each for each in self.ordered if not self.in_module(each)]
        return self._made(self.ordered, noise=False) or self._made(noise, noise=True)

    def _made(self, operations: Iterable[Operation], noise: bool) -> dict[Operation, list[Value]]:
        made: dict[Operation, list[Value]] = {}
        parts: set[Operation] = set()
        for each in operations:
            bases = [all_held(user.inputs[:1]) for user in self._picked_by(each)]
            if each in parts or bases and not any(map(parts.isdisjoint, bases)):  # it picks of the batch itself
                continue
            number = (
                self.number_drawn(each) if noise or self._chooses(each) else self._rounds_of(each) if bases else None
            )
            told = [number] if number is not None else self._piece(each)
            if told is not None:
                made[each] = told
                parts |= {each} | self.downstream(each)
        return made

    # draws

    def shape(self, operation: Operation) -> list[Value]:
        """The sizes of what is drawn."""
        if operation.owner is not None and operation.owner.name.startswith(DISTRIBUTIONS):
            told = operation.argument("sample_shape", 0)
            return (arguments.parts(told) or [] if told is not None else []) if operation.name.endswith(SAMPLES) else []
        known = operation.known
        return arguments.sizes_of(operation, known) if known is not None and known.cls == "random" else []

    def number_drawn(self, operation: Operation) -> Value | None:
        """How many samples an operation draws anew in each step; None for one, and for an order of all samples."""
        told = self.shape(operation)
        if not told or not sizes.is_several(told[0]) or not self.in_step(operation):
            return None
        of = sizes.key(operation.inputs[0]) if len(operation.inputs) > 1 else None
        return None if of == sizes.key(told[0]) and self._chooses(operation) else told[0]

    def _rounds_of(self, operation: Operation) -> Value | None:
        """How many numbers are drawn one by one to pick samples: `[data[random.randrange(n)] for _ in range(size)]`"""
        if operation.name not in SINGLE or not self.in_step(operation):
            return None
        for loop in self.loops_in_step(operation):
            for each in held(loop.subject):
                if each.name == "range.index" and sizes.is_several(bound := each.inputs[:2][-1]):
                    return bound
        return None

    def _picked_by(self, operation: Operation) -> list[Operation]:
        """The subscripts that pick by its numbers."""
        users = ((each, sizes.first_key(each)) for each in self.program.users[operation])
        return [each for each, first in users if first is not None and operation in held(first)]

    def _chooses(self, operation: Operation) -> bool:
        """Whether it draws numbers of samples, and not noise."""
        known = operation.known
        return known is not None and "index_draw" in self._catalog.roles(known.name)

    def draws_anew(self, operation: Operation) -> bool:
        """Whether it draws something in each of the loops around steps."""
        drawing = RANDOM_ROLES & self._catalog.roles(operation.name)
        draws = bool(drawing) or "generator" in getattr(operation.owner, "roles", ())
        return draws and self.in_pass(operation)

    # pieces

    def varies(self, bound: Value) -> bool:
        """Whether a number is another one in each round of a loop."""
        seen, pending = set[Operation](), [bound]
        while pending:
            each = pending.pop()
            if len(each.constants) > 1:
                return True
            for operation in each.operations - seen:
                seen.add(operation)
                if operation in self.program.cyclic or operation.name in ROUNDS or self.draws_anew(operation):
                    return True
                pending += operation.operands
        return False

    def _piece(self, operation: Operation) -> list[Value] | None:
        """How long a part of the data is that an operation takes, if it takes another one in each step."""
        short = operation.name.rpartition(".")[2]
        if short not in ("iterate", "getitem", "narrow") or self.in_module(operation) or not self.in_pass(operation):
            return None
        if short == "iterate":
            return _of_split(operation)
        if short == "narrow":  # `data.narrow(0, start, size)`
            _, axis, start, size = (*operation.inputs, *[Value()] * 4)[:4]
            return [size] if axis.constant == 0 and self.varies(start) else None
        return self._of_slice(operation) if len(operation.inputs) > 1 else None

    def _of_slice(self, operation: Operation) -> list[Value] | None:
        keys = arguments.keys_of(operation.inputs[1]) or [operation.inputs[1]]
        if (told := arguments.parts(keys[0])) is not None:  # `data[[i]]`
            return [constant(len(told))] if any(map(self.varies, told)) else None
        cut = sizes.as_slice(keys[0])
        if cut is None:
            return None
        if sizes.is_whole(cut):  # `data[:, i : i + length]`, of all rows
            along = self.once_a_step(operation) and any(map(self.varies, keys[1:]))
            return [size for each in self.upstream([operation]) for size in laid_out(each)] if along else None
        first = cut.inputs[0].constant in (None, 0) and self._is_drawn(operation.inputs[0])
        return list(sizes.lengths(cut)) if first or any(map(self.varies, cut.inputs[:2])) else None

    def _is_drawn(self, base: Value) -> bool:
        """`torch.randperm(n)[:size]`, in a step"""
        before = frozenset(held(base))
        return any(self._chooses(each) and self.in_step(each) for each in before | self.upstream(before))


def _of_split(operation: Operation) -> list[Value] | None:
    """`for part in torch.split(order, size)`, and the numbers that a batch sampler gives."""
    if "batch_sampler" in getattr(operation.owner, "roles", ()):
        return list(batch_sizes(operation.owner))
    for each in operation.inputs[0].operations if operation.inputs else ():
        if each.name.rpartition(".")[2] in SPLITS and len(each.inputs) > 1:
            return [each.inputs[1]] if each.name.endswith((".split", ".batched")) else []
    return None


def batch_sizes(loader: Any) -> Iterator[Value]:
    """What a loader or a batch sampler is told for the size of its batches."""
    told = loader.argument("batch_size", 1)
    if told is not None:
        yield told
    sampler = loader.argument("batch_sampler", 4)
    for each in sampler.things if sampler is not None else ():
        if (size := each.argument("batch_size", 1)) is not None:
            yield size


def laid_out(operation: Operation) -> Iterator[Value]:
    """`columns`, of `data.view(columns, -1)` and of `data.view(columns, len(data) // columns)`"""
    told = arguments.sizes_of(operation) if operation.name.endswith((".view", ".reshape")) else []
    for each, other in zip(told, told[::-1], strict=True) if len(told) == 2 else ():
        counts = (op.inputs[1] for op in other.operations if op.name == "operator.floordiv")
        if other.constant == -1 or any(sizes.key(count) == sizes.key(each) for count in counts):
            yield each


def keys(told: Iterable[Value]) -> frozenset[Hashable]:
    """The keys of numbers of samples."""
    return frozenset(each for size in told if sizes.is_several(size) and (each := sizes.key(size)) is not None)
