from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("gloo", "nccl")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=WRONG.replace("torch.zeros(1)", 'torch.zeros(1, device="cuda")'), after=None),
    Example(before=WRONG.replace("torch.zeros(1)", "torch.zeros(1).cuda()"), after=None),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD107", of_ranks=True)
def reduce_on_gpu(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a tensor on the CPU that NCCL is to reduce.

    Of a script that distributes itself: NCCL knows the memory of GPUs alone, and raises `No backend type associated
    with device type cpu`.
    """
    yield from raised(script, "AD107")
