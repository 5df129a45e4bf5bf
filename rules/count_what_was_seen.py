from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

COUNTED = HAND_WRITTEN.replace("total = torch.zeros(1)", "total = torch.zeros(2)").replace(
    "        total += loss.detach() / len(loader) / dist.get_world_size()\n",
    "        total[0] += ((model(x) > 0) == (y > 0)).sum()\n        total[1] += len(x)\n",
)
COUNTED = COUNTED.replace("Sampler(train_set)", "Sampler(train_set, shuffle=False)").replace(
    "{total.item()}", "{total[0] / total[1]}"
)
WRONG = COUNTED.replace("/ total[1]", "/ len(train_set)")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=COUNTED, after=None),
    Example(before=WRONG.replace("shuffle=False", "shuffle=False, drop_last=True"), after=None),
]


@rule("AD611", of_ranks=True)
def count_what_was_seen(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a sum over padded shares that is divided by the length of the data.

    Of a script that distributes itself: a DistributedSampler fills the shares up with samples that another rank has,
    too, so that an accuracy may exceed 1. Count what was seen, or evaluate whole data.
    """
    yield from raised(script, "AD611")
