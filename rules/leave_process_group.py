from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace("gloo", "nccl")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=WRONG + "dist.destroy_process_group()\n", after=None),
    Example(before=HAND_WRITTEN, after=None),
]


@rule("AD109", of_ranks=True, on_request=True)
def leave_process_group(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a process group of NCCL that is never left.

    Of a script that distributes itself: a rank that ends while others still wait for NCCL lets them hang or abort, and
    torch warns that `destroy_process_group() was not called before program exit`. Most scripts end on all ranks at
    once, so it is said only where `--select` asks for it.
    """
    yield from raised(script, "AD109")
