"""What ranks have of their own, and what collectives make of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from autodist.placement.call import Call
from autodist.placement.lattice import PerRank, Placement, Replicate
from autodist.program import Operation, Program, held

RANKS = frozenset("RANK LOCAL_RANK GROUP_RANK NODE_RANK SLURM_PROCID SLURM_LOCALID".split()) | {
    f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "LOCAL_RANK")
}
WORLD = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
"""Variables of the environment that launchers set."""
ENVIRONMENT = ("os.environ.get", "os.getenv")
OWN_NUMBER = "each rank has a number of its own"
NEAR = 12
"""So many operations further it is still looked whether a value was reduced: `total /= world_size`."""


def collective(call: Call) -> Placement:
    """What all ranks have, or each its part of it."""
    return PerRank(call.operation, "each rank is given its own part") if call.parameters.get("apart") else Replicate()


def rank(call: Call) -> Placement:
    """The number of a rank."""
    return PerRank(call.operation, OWN_NUMBER)


def gives_rank(operation: Operation) -> bool:
    """Whether an operation gives the number of the process that runs it."""
    if operation.name == "process.number":
        return True
    return operation.name in ENVIRONMENT and bool(operation.inputs) and operation.inputs[0].constant in RANKS


def is_rank(operation: Operation) -> bool:
    """The same, or whether it asks the process group for it, or reads the option that launchers give."""
    asked = operation.known is not None and operation.known.cls == "rank"
    return asked or gives_rank(operation) or operation.name == "object.local_rank"


def gives_world(operation: Operation) -> bool:
    """Whether an operation tells how many processes there are, as launchers say."""
    return operation.name in ENVIRONMENT and bool(operation.inputs) and operation.inputs[0].constant in WORLD


class Reduced:
    """Which results of a program are others once they are reduced over the ranks: `dist.all_reduce(total)`"""

    def __init__(self) -> None:
        self._known: dict[Operation, frozenset[Operation]] = {}

    def without(self, made: Sequence[Operation]) -> list[Operation]:
        """Some of the results that a value may be, without those that others of them are once they are reduced."""
        reduced = frozenset[Operation]().union(*map(self._by, made))
        return [each for each in made if each not in reduced] or list(made)

    def _by(self, operation: Operation) -> frozenset[Operation]:
        """What a result was before it was reduced, and what that is computed of."""
        if operation not in self._known:
            messages = [one for one in _before([operation]) if one.name.startswith("torch.distributed.")]
            before = frozenset(_before(messages)).difference(messages) if messages else frozenset[Operation]()
            self._known[operation] = before - {operation}
        return self._known[operation]


@lru_cache(maxsize=2)
def reduced_in(program: Program) -> Reduced | None:
    """The results that a program reduces itself, if it does: found once, as it does not change any more."""
    return Reduced() if any(each.name.startswith("torch.distributed.") for each in program.operations) else None


def _before(ends: Sequence[Operation]) -> list[Operation]:
    """Some operations, and the nearest of those that they are computed of."""
    found = list(ends)
    for one in found:
        if len(found) >= NEAR:
            break
        given = {op for value in one.operands for op in held(value)}
        found += sorted(given.difference(found), key=lambda op: -op.number)
    return found
