from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("lr=0.1", "lr=rate * dist.get_world_size()").replace(
    "optimizer = ", "rate = 0.1 * dist.get_world_size()\noptimizer = "
)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN.replace("lr=0.1", "lr=0.1 * dist.get_world_size()"), after=None),
    Example(before=WRONG.replace("rate = 0.1 * dist.get_world_size()", "rate = 0.1"), after=None),
]


@rule("AD417", of_ranks=True)
def scale_rate_once(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a learning rate that is multiplied by the number of ranks twice.

    Of a script that distributes itself: once may be meant, as the batch grows with the number of ranks. Twice is an
    oversight, mostly of a rate that an option or a launcher has scaled already.
    """
    yield from raised(script, "AD417")
