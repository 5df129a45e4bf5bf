"""Placements under the plans that were tried last: another one differs little from one of them, and what it has in
common with that is not placed again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from autodist.catalog import Catalog
from autodist.placement.decided import dependents
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan, changed
from autodist.program import Operation, Program, held, joined

MOST = 8
"""So many are kept."""


class Kept:
    """The last placements of the program that was asked for last."""

    def __init__(self) -> None:
        self._last: tuple[tuple[object, ...], deque[Placements]] = ((), deque())

    def of(self, program: Program, catalog: Catalog | None) -> deque[Placements]:
        """Those of a program under the same facts about libraries, to which more are added."""
        about = program, catalog, catalog.measured if catalog is not None else None
        told, found = self._last
        if len(told) != len(about) or any(one is not other for one, other in zip(told, about, strict=True)):
            found = deque(maxlen=MOST)
            self._last = about, found
        return found


KEPT = Kept()


def nearest(plan: Plan, kept: Iterable[Placements]) -> tuple[Placements, set[Operation]] | None:
    """The placements whose plan differs least from another one, and in which operations; None if in all of them ranks
    have other rounds of loops."""
    like = [(each, each.plan) for each in kept if each.plan is not None and plan.rounds == each.plan.rounds]
    found = ((each, changed(plan, other, each.asked)) for each, other in like)
    return min(found, key=lambda each: len(each[1]), default=None)


def depending(near: tuple[Placements, set[Operation]], program: Program) -> list[Operation]:
    """What depends on the operations in which two plans differ, gradients of losses among it."""
    found = program.depending(near[1])
    found = program.depending({*found, *(each for op in found for each in dependents(program).get(op, ()))})
    losses = {op for each in program.of("backward") for op in held(joined(each.operation.inputs[:1]))}
    if losses & found:
        found = program.depending({*found, *(each for each in program.operations if each.name == "torch.Tensor.grad")})
    return sorted(found, key=lambda op: op.number)
