from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

BRANCHES = """\
    if dist.get_rank() == 0:
        dist.broadcast(total, 0)
        dist.all_reduce(total)
    else:
        dist.all_reduce(total)
        dist.broadcast(total, 0)
"""
WRONG = HAND_WRITTEN.replace("    dist.barrier()\n", BRANCHES)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(
        before=WRONG.replace(
            "        dist.broadcast(total, 0)\n        dist.all_reduce(total)\n    else:",
            "        dist.all_reduce(total)\n        dist.broadcast(total, 0)\n    else:",
        ),
        after=None,
    ),
]


@rule("AD804", of_ranks=True)
def call_alike(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report collectives that ranks call in another order, or with tensors of another type.

    Of a script that distributes itself: what one rank calls first is matched with what another calls first. A
    different order hangs, a different type gives numbers that mean nothing.
    """
    yield from raised(script, "AD804")
