from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("    dist.barrier()\n", "        dist.barrier()\n")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(
        before=WRONG.replace(
            "if dist.get_rank() == 0:\n    torch",
            "    else:\n        dist.barrier()\nif dist.get_rank() == 0:\n    torch",
        ),
        after=None,
    ),
]


@rule("AD801", of_ranks=True)
def meet_on_all_ranks(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a collective that some ranks never reach.

    Of a script that distributes itself: a collective, a barrier, or the backward pass of a wrapped model returns once
    all ranks have called it. Where only rank 0 calls it, or others have left by then, those that wait do so until the
    process group gives up.
    """
    yield from raised(script, "AD801")
