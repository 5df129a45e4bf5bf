from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

REPORTED = """\
import torch
from torch import nn

model = nn.Linear(4, 1)
with torch.no_grad():
    print(model(torch.randn(8, 4)))
"""

EXAMPLES = [
    Example(
        before=REPORTED,
        after=REPORTED,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD901")
def refuse_no_training(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a script that trains nothing.

    No `loss.backward()` is reached from it, so there are no gradients to average.
    """
    yield from raised(script, "AD901")
