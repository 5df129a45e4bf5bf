from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("Sampler(train_set)", 'Sampler(train_set, rank=int(os.environ["LOCAL_RANK"]))')

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=WRONG.replace("LOCAL_RANK", "RANK"), after=None),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD210", of_ranks=True)
def share_by_global_rank(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a share of the data that is taken by the number of the rank on its machine.

    Of a script that distributes itself: on two nodes two ranks have each `LOCAL_RANK`, so that half of the data are
    seen twice and the rest never. On one machine nothing is wrong.
    """
    yield from raised(script, "AD210")
