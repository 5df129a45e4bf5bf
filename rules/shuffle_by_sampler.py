from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("sampler=sampler)", "sampler=sampler, shuffle=True)")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=HAND_WRITTEN.replace("sampler=sampler)", "sampler=sampler, shuffle=sampler is None)"), after=None),
]


@rule("AD209", of_ranks=True)
def shuffle_by_sampler(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report `shuffle=True` beside a sampler.

    Of a script that distributes itself: DataLoader raises a ValueError. A DistributedSampler shuffles unless it is
    told not to.
    """
    yield from raised(script, "AD209")
