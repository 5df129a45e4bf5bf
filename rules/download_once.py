from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

RIGHT = HAND_WRITTEN.replace(
    "model = nn",
    """\
if dist.get_rank() == 0:
    MNIST("data", download=True)
dist.barrier()
digits = MNIST("data")
model = nn""",
).replace("import os\n", "import os\n\nfrom torchvision.datasets import MNIST\n", 1)
WRONG = RIGHT.replace("if dist.get_rank() == 0:\n    MNIST", "if True:\n    MNIST", 1)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=RIGHT, after=None),
]


@rule("AD310", of_ranks=True)
def download_once(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a download that all ranks begin at once.

    Of a script that distributes itself: the ranks of a machine write the same files at the same time, and some read
    what others have half written. Rank 0 downloads, and the others wait at a barrier before they read.
    """
    yield from raised(script, "AD310")
