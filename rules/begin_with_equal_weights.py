from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

AVERAGED = (
    HAND_WRITTEN.replace("model = DistributedDataParallel(model)\n", "")
    .replace(
        "loss.backward()\n",
        """\
loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()
""",
    )
    .replace("model.module", "model")
)
WRONG = AVERAGED.replace("torch.manual_seed(0)\n", "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=AVERAGED, after=None),
    Example(before=HAND_WRITTEN.replace("torch.manual_seed(0)\n", ""), after=None),
]


@rule("AD707", of_ranks=True)
def begin_with_equal_weights(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report weights that each rank draws for itself, where nothing makes them alike.

    Of a script that distributes itself: DistributedDataParallel sends the weights of rank 0 to all. FSDP and gradients
    that are averaged by hand do not: ranks train different models by the same gradients.
    """
    yield from raised(script, "AD707")
