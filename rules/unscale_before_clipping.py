from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

SCALED = HAND_WRITTEN.replace("\nfor epoch", 'scaler = torch.amp.GradScaler("cuda")\n\nfor epoch', 1).replace(
    "        loss.backward()\n        optimizer.step()\n",
    """\
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
""",
)
WRONG = SCALED.replace("        scaler.unscale_(optimizer)\n", "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=SCALED, after=None),
]


@rule("AD415", of_ranks=True)
def unscale_before_clipping(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report gradients that are clipped while a GradScaler still has them scaled.

    Of a script that distributes itself: the scaler multiplies the loss by up to 65,536, and gradients with it. Clipped
    to a norm of 1 before `scaler.unscale_(optimizer)`, they are nearly nothing after it.
    """
    yield from raised(script, "AD415")
