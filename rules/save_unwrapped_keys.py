from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

LOADS = HAND_WRITTEN + 'again = nn.Linear(4, 1)\nagain.load_state_dict(torch.load("model.pt", map_location="cpu"))\n'
WRONG = LOADS.replace("model.module.state_dict()", "model.state_dict()")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=LOADS, after=None),
]


@rule("AD414", of_ranks=True)
def save_unwrapped_keys(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a checkpoint of the DDP wrapper that the script loads into a model that is not wrapped.

    Of a script that distributes itself: the keys of the wrapper begin with `module.`, and those of the model do not.
    Nothing is said where the script deals with that prefix itself.
    """
    yield from raised(script, "AD414")
