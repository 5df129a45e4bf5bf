from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

RIGHT = HAND_WRITTEN.replace(
    "model = nn.Linear(4, 1)", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\nmodel = nn.Linear(4, 1).cuda()'
)
WRONG = HAND_WRITTEN.replace("model = nn.Linear(4, 1)", 'model = nn.Linear(4, 1).to("cuda:0")')

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=RIGHT, after=None),
]


@rule("AD105", of_ranks=True)
def use_own_gpu(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a GPU that all ranks of a machine use.

    Of a script that distributes itself: `cuda:0`, or `cuda` without `torch.cuda.set_device`, is the same GPU on each
    rank. NCCL refuses two ranks on one GPU, and gloo lets them share its memory and its time.
    """
    yield from raised(script, "AD105")
