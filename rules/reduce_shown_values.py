from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("    dist.all_reduce(total)\n", "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=WRONG.replace('f"epoch', 'f"rank {dist.get_rank()}, epoch'), after=None),
]


@rule("AD610", of_ranks=True)
def reduce_shown_values(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report what is shown, logged or handed to a scheduler as that of all samples, and is one rank's.

    Of a script that distributes itself. A sampler gives each rank its share: a count, a loss or an accuracy that is
    computed of it is that share's, until the ranks have told each other. What a step shows of its own batch while it
    goes on is left alone, and so is a line that says whose number it is.
    """
    yield from raised(script, "AD610")
