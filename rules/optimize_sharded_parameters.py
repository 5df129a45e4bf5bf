from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

SHARDED = HAND_WRITTEN.replace("model = DistributedDataParallel(model)", "fully_shard(model)")
SHARDED = SHARDED.replace(
    "torch.nn.parallel import DistributedDataParallel", "torch.distributed.fsdp import fully_shard"
)
WRONG = SHARDED.replace("fully_shard(model)\n", "").replace("\nfor epoch", "fully_shard(model)\n\nfor epoch", 1)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=SHARDED, after=None),
]


@rule("AD509", of_ranks=True)
def optimize_sharded_parameters(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report an optimizer that is made before its model is sharded.

    Of a script that distributes itself: FSDP puts other parameters in the place of those that the optimizer has. It
    steps over what gets no gradients, and the loss stays as it is.
    """
    yield from raised(script, "AD509")
