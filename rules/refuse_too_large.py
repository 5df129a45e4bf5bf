from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y) + {penalty}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LONG = "def penalty(weight):\n    {statements}\n    return weight.norm()\n\n".format(
    statements="; ".join(["pass"] * 2000)
)
LARGE = SCRIPT.replace("train_set", LONG + "train_set", 1).format(penalty=" + ".join(["penalty(model.weight)"] * 90))

EXAMPLES = [
    Example(before=LARGE, after=LARGE),
    Example(before=SCRIPT.format(penalty="0.1 * model.weight.norm()"), after=None),
]


@rule("AD905")
def refuse_too_large(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a script that is too large to be followed to its end.

    What was not understood cannot be converted safely. The same holds for a module that makes loaders or models while
    it is imported: that is before the ranks can find each other. Of more modules than can be followed of which an
    option names one, those are that the script names itself, with a warning.
    """
    yield from raised(script, "AD905")
