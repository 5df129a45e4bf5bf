from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("torch.manual_seed(0)\n", "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD706", of_ranks=True)
def seed_before_splitting(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report data that each rank draws or splits from a seed of its own.

    Of a script that distributes itself: without a seed a process draws from one that the system gives it. What one
    rank holds out for validation, another trains on.
    """
    yield from raised(script, "AD706")
