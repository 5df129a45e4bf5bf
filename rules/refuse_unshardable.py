from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import SHARDED, Context, Example, Finding, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

WHOLE = PLAIN + 'torch.save(model, "model.pt")\n'
TRACED = PLAIN + 'torch.jit.trace(model, torch.randn(1, 4)).save("model.pt")\n'

HOOKED = PLAIN.replace("\nfor epoch", "model.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))\n\nfor epoch")

VECTOR = PLAIN + "print(nn.utils.parameters_to_vector(model.parameters()).norm().item())\n"
ROW = PLAIN.replace("optimizer.step()\n", "optimizer.step()\n        model.weight.data[:, 0].zero_()\n")

EXAMPLES = [
    Example(before=VECTOR, after=VECTOR),
    Example(before=ROW, after=ROW),
    Example(before=HOOKED, after=HOOKED),
    Example(before=WHOLE, after=WHOLE),
    Example(before=TRACED, after=TRACED),
    Example(before=PLAIN, after=None),
]


@rule("AD907", *SHARDED)
def refuse_unshardable(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse what cannot be done with shards of a model.

    A sharded model cannot be copied, saved as an object, traced, entered by one of its parts, or differentiated twice,
    and its parameters can neither be exchanged nor hooked. `--strategy ddp` keeps the whole model on every rank and has
    no such limits.
    """
    for concern in script.concerns:
        if concern.code == "AD907":
            yield Finding(concern.source, concern.node, concern.message, severity=concern.severity)
