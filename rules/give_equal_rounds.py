from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import HAND_WRITTEN

WRONG = HAND_WRITTEN.replace(
    "    dist.barrier()\n",
    "    for name in sorted(os.listdir('data'))[dist.get_rank() :: dist.get_world_size()]:\n        dist.barrier()\n",
)

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=HAND_WRITTEN, after=None),
    Example(before=WRONG.replace("        dist.barrier()\n", "        os.stat(name)\n"), after=None),
]


@rule("AD803", of_ranks=True)
def give_equal_rounds(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report a loop over a rank's own share in which it waits for the others.

    Of a script that distributes itself: of 10 files, `files[rank::4]` has 3 or 2. The ranks that have one more wait in
    it for those that have left the loop, until the process group gives up.
    """
    yield from raised(script, "AD803")
