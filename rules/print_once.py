from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("    if dist.get_rank() == 0:\n        print", "    if True:\n        print")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=WRONG.replace('f"epoch', 'f"rank {dist.get_rank()}, epoch'), after=None),
]


@rule("AD309", of_ranks=True)
def print_once(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report what all ranks print from epoch to epoch.

    Of a script that distributes itself: the line comes as often as there are ranks, in any order. Lines that say which
    rank prints them are left alone, and so is what is printed before training.
    """
    yield from raised(script, "AD309")
