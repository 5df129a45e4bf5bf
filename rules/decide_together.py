from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("    dist.all_reduce(total)\n", "    if total.item() < 0.1:\n        break\n")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(
        before=HAND_WRITTEN.replace("    if dist", "    if total.item() < 0.1:\n        break\n    if dist"), after=None
    ),
]


@rule("AD802", of_ranks=True)
def decide_together(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a decision that each rank takes by its own samples, where ranks then wait for each other.

    Of a script that distributes itself: a loss, an accuracy or a count of a rank's own samples differs between ranks.
    Ranks that stop, skip a step or save by it part from the others, and whoever comes to the next collective waits.
    """
    yield from raised(script, "AD802")
