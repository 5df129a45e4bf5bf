from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import SHARDED, Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

WHOLE = PLAIN + 'torch.save(model, "model.pt")\n'
TRACED = PLAIN + 'torch.jit.trace(model, torch.randn(1, 4)).save("model.pt")\n'

HOOKED = PLAIN.replace("\nfor epoch", "model.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))\n\nfor epoch")

VECTOR = PLAIN + "print(nn.utils.parameters_to_vector(model.parameters()).norm().item())\n"
ROW = PLAIN.replace("optimizer.step()\n", "optimizer.step()\n        model.weight.data[:, 0].zero_()\n")

TIED = PLAIN.replace("model = nn.Linear(4, 1)\n", "model = Net()\n").replace(
    "\ntrain_set",
    """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (x @ self.blocks[0].fc.weight).sum(1, keepdim=True)


train_set""",
    1,
)

EXAMPLES = [
    Example(before=TIED, after=TIED),
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
    yield from raised(script, "AD907")
