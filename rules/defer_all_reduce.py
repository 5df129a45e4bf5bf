from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import InsertBefore
from autodist.rule import REPLICATED, Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import ACCUMULATING, PLAIN
from ._preamble import planned

FORWARD = "        loss = nn.functional.mse_loss(model(x), y)\n"
LAST = "        model.require_backward_grad_sync = (i + 1) % 4 == 0\n"

EXAMPLES = [
    Example(before=ACCUMULATING, after=ACCUMULATING.replace(FORWARD, LAST + FORWARD)),
    Example(before=PLAIN, after=None),
]


@rule("AD412", *REPLICATED)
def defer_all_reduce(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Reduce accumulated gradients over the ranks once, in the last micro-step before a step.

    DistributedDataParallel reduces them in each backward pass, unless it is told that no step follows: `no_sync()` does
    so for a block of code, and this attribute, which it sets, in one line. It is read in the forward pass, so it is set
    ahead of that. Until the last micro-step each rank adds up its own gradients: where something reads or clips them
    between two steps, every pass reduces.
    """
    if not script.trains:
        return
    wrapped = [model for model in script.models if model.wrapping is not None and model.bypassed is None]
    if len(wrapped) != len(script.models) or any("torch.compile" in source.text for source in script.project.sources):
        return
    for deferral in script.deferrals:
        code = f"{deferral.target}.require_backward_grad_sync = {deferral.last}\n"
        fix = Fix(planned(deferral.site.source, InsertBefore(deferral.site.statement, code)))
        message = "gradients are reduced in each micro-step, of which only the last comes before a step"
        yield Finding(deferral.site.source, deferral.site.node, message, fix)
