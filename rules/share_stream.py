from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

STREAM = HAND_WRITTEN.replace(
    "dist.init",
    "class Stream(IterableDataset):\n    def __iter__(self):\n        return iter(range(64))\n\n\ndist.init",
    1,
)
STREAM = STREAM.replace("DistributedSampler, TensorDataset", "IterableDataset")
STREAM = STREAM.replace("sampler = DistributedSampler(train_set)\n", "").replace("    sampler.set_epoch(epoch)\n", "")
STREAM = STREAM.replace(", sampler=sampler", "").replace(
    "TensorDataset(torch.randn(64, 4), torch.randn(64, 1))", "Stream()"
)
STREAM = STREAM.replace("for x, y in loader", "for x in loader").replace("model(x), y", "model(x), x")
STREAM = STREAM.replace("import os\n", "import itertools\nimport os\n")
WRONG = STREAM

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(
        before=STREAM.replace(
            "iter(range(64))", "itertools.islice(range(64), dist.get_rank(), None, dist.get_world_size())"
        ),
        after=None,
    ),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD211", of_ranks=True)
def share_stream(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a stream of samples that all ranks read whole.

    Of a script that distributes itself: a DataLoader takes no sampler for an IterableDataset, so the data set has to
    give each rank its own samples. Else all ranks train on the same ones.
    """
    yield from raised(script, "AD211")
