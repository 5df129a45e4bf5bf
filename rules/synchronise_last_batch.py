from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("        loss.backward()", "        with model.no_sync():\n            loss.backward()")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(
        before=WRONG.replace("with model.no_sync()", "with model.no_sync() if total < 1 else contextlib.nullcontext()"),
        after=None,
    ),
]


@rule("AD416", of_ranks=True)
def synchronise_last_batch(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report backward passes none of which averages gradients.

    Of a script that distributes itself: under `no_sync` ranks keep their gradients to themselves, which the last
    micro-batch of a step must not. Nothing fails; each rank trains a model of its own.
    """
    yield from raised(script, "AD416")
