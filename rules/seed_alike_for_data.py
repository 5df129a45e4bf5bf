from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("torch.manual_seed(0)", "torch.manual_seed(dist.get_rank())")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=HAND_WRITTEN.replace("model = nn", "torch.manual_seed(dist.get_rank())\nmodel = nn"), after=None),
]


@rule("AD705", of_ranks=True)
def seed_alike_for_data(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report data that are drawn or split after each rank was seeded apart.

    Of a script that distributes itself: a sampler shares out the samples of one data set. Where ranks draw or split it
    by seeds of their own, their shares overlap and samples of the evaluation are trained on. Dropout may differ by
    rank, and so may the weights of a model that DDP wraps, which takes those of rank 0.
    """
    yield from raised(script, "AD705")
