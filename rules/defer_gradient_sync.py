from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import InsertBefore
from autodist.rule import SHARDED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import ACCUMULATING, EVERY_FOURTH, PLAIN
from ._preamble import planned

TAIL = EVERY_FOURTH.replace("            optimizer.zero_grad()\n", "")
LAST = "        model.set_requires_gradient_sync((i + 1) % 4 == 0)\n"
# a tail that is not stepped is cleared by the next epoch: nothing may be kept whole until then
CLEARED = ACCUMULATING.replace(EVERY_FOURTH, TAIL).replace("    for i,", "    optimizer.zero_grad()\n    for i,")

EXAMPLES = [
    Example(
        before=ACCUMULATING, after=ACCUMULATING.replace("        loss.backward()\n", LAST + "        loss.backward()\n")
    ),
    Example(before=CLEARED, after=None),
    Example(before=PLAIN, after=None),
]


@rule("AD507", *SHARDED)
def defer_gradient_sync(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Reduce accumulated gradients over the ranks once, in the last backward pass before a step.

    Until then each rank adds up its own gradients of all parameters, as DistributedDataParallel does under `no_sync`:
    there is less to send, and the memory of whole gradients to pay. `--no-defer-gradient-sync` reduces in each
    micro-step and keeps shards, and so do `--cpu-offload` and an FSDP that `--strategy auto` has chosen because memory
    is short. Gradients that wait are not seen by `zero_grad`, clipping, or what reads `.grad`: where one of these comes
    between two steps, where a window may end without a step and then be cleared, or where layers do not run each time,
    every pass reduces.
    """
    if not script.trains or not context.config.defer_gradient_sync or context.config.cpu_offload:
        return
    for deferral in script.shards.deferrals:
        code = f"{deferral.target}.set_requires_gradient_sync({deferral.last})\n"
        message = (
            "gradients are reduced in the last micro-step before a step, and whole on every rank until then; "
            "--no-defer-gradient-sync keeps shards of them"
        )
        fix = Fix(planned(deferral.site.source, InsertBefore(deferral.site.statement, code)))
        yield Finding(deferral.site.source, deferral.site.node, message, fix)
