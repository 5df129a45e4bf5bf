from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("torch.manual_seed", "torch.cuda.set_device(dist.get_rank())\ntorch.manual_seed")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=WRONG.replace("dist.get_rank())\n", 'int(os.environ["LOCAL_RANK"]))\n'), after=None),
    Example(before=WRONG.replace("dist.get_rank())\n", "dist.get_rank() % torch.cuda.device_count())\n"), after=None),
]


@rule("AD106", of_ranks=True)
def take_gpu_of_machine(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a GPU that is taken by the number of the rank among all nodes.

    Of a script that distributes itself: `torch.cuda.set_device(dist.get_rank())` works on one machine. The second has
    GPUs 0 to 7, and ranks 8 to 15: `LOCAL_RANK` is the number there.
    """
    yield from raised(script, "AD106")
