from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace(
    "\nfor epoch",
    "if dist.get_rank() == 0:\n    optimizer.load_state_dict(torch.load('o.pt', map_location='cpu'))\n\nfor epoch",
)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=WRONG.replace("if dist.get_rank() == 0:\n    optimizer", "optimizer"), after=None),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD312", of_ranks=True)
def restore_on_all_ranks(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a checkpoint that only rank 0 goes on from.

    Of a script that distributes itself: the state of an optimizer, or of a model that is wrapped already, is every
    rank's own. Nothing sends it from rank 0 to the others, which go on from the beginning.
    """
    yield from raised(script, "AD312")
