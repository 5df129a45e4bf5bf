"""What ranks have of their own, and what collectives make of it."""

from __future__ import annotations

from collections.abc import Sequence

from autodist.placement.call import Call
from autodist.placement.lattice import PerRank, Placement, Replicate
from autodist.program import Operation, held

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


def without_reduced(made: Sequence[Operation]) -> list[Operation]:
    """Some of the results that a value may be, without those that others are once they are reduced over the ranks:
    `if distributed: dist.all_reduce(total)`"""
    reduced = set[Operation]()
    for each in made:
        messages = [one for one in _before([each]) if one.name.startswith("torch.distributed.")]
        reduced |= {one for one in _before(messages) if one not in messages} - {each} if messages else set()
    return [each for each in made if each not in reduced] or list(made)


def _before(ends: Sequence[Operation]) -> list[Operation]:
    """Some operations, and the nearest of those that they are computed of."""
    found = list(ends)
    for one in found:
        if len(found) >= NEAR:
            break
        given = {op for value in one.operands for op in held(value)}
        found += sorted(given.difference(found), key=lambda op: -op.number)
    return found
