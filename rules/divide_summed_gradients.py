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
DIVIDE = "            p.grad /= dist.get_world_size()\n"
LATER = DIVIDE.replace("            p.grad", "        for p in model.parameters():\n            p.grad")
TOGETHER = "        torch._foreach_div_([p.grad for p in model.parameters()], dist.get_world_size())\n"
WRONG = AVERAGED.replace(DIVIDE, "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=AVERAGED, after=None),
    Example(before=AVERAGED.replace(DIVIDE, LATER), after=None),
    Example(before=AVERAGED.replace(DIVIDE, TOGETHER), after=None),
    Example(before=WRONG.replace("ReduceOp.SUM", "ReduceOp.AVG"), after=None),
]


@rule("AD418", of_ranks=True)
def divide_summed_gradients(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report gradients that ranks add up, and nobody divides.

    Of a script that distributes itself by hand: each rank's gradient is that of the mean over its own batch, and their
    sum is as many times too large as there are ranks.
    """
    yield from raised(script, "AD418")
