from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN + "state = torch.load('model.pt', map_location='cpu')\n"

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN + "dist.barrier()\nstate = torch.load('model.pt', map_location='cpu')\n", after=None),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD313", of_ranks=True)
def wait_for_file(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a file that ranks read before rank 0 has surely written it.

    Of a script that distributes itself: rank 0 writes or downloads, and the others are past that line at once. A
    barrier, or any collective that all ranks join, makes them wait.
    """
    yield from raised(script, "AD313")
