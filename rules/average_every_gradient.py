from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

UNWRAPPED = HAND_WRITTEN.replace("model = DistributedDataParallel(model)\n", "").replace("model.module", "model")
HEAD = (
    HAND_WRITTEN.replace("model = nn.Linear(4, 1)", "model, head = nn.Linear(4, 4), nn.Linear(4, 1)")
    .replace("model.parameters(), lr", "[*model.parameters(), *head.parameters()], lr")
    .replace("model(x), y", "head(model(x)), y")
)
AVERAGED = UNWRAPPED.replace(
    "loss.backward()\n",
    """\
loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
""",
)

EXAMPLES = [
    Example(before=UNWRAPPED, after=UNWRAPPED),
    Example(before=HEAD, after=HEAD),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=AVERAGED, after=None),
]


@rule("AD419", of_ranks=True)
def average_every_gradient(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report what is trained on each rank's own samples, and whose gradients nothing averages.

    Of a script that distributes itself: a model that is not wrapped, a head or a tensor beside the wrapped one. Nothing
    fails; each rank trains a model of its own on its share of the data, and rank 0 saves one of them.
    """
    yield from raised(script, "AD419")
