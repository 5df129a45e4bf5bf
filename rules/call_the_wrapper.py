from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("mse_loss(model(x)", "mse_loss(model.module(x)")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD413", of_ranks=True)
def call_the_wrapper(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a forward pass in training that goes round the DDP wrapper.

    Of a script that distributes itself: `model.module(x)` computes the same, but the wrapper does not know of the pass
    and averages no gradients. Nothing fails; each rank trains a model of its own.
    """
    yield from raised(script, "AD413")
