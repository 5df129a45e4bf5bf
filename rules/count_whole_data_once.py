from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import SetArgument
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._examples import PLAIN
from ._preamble import planned

BEFORE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Accuracy, ConfusionMatrix

train_set = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(30, 4), torch.randint(0, 3, (30,))), batch_size=8)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accuracy = Accuracy(task="multiclass", num_classes=3)
confusion = ConfusionMatrix(task="multiclass", num_classes=3)

for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        accuracy.update(out, y)
    confusion.reset()
    with torch.no_grad():
        for x, y in test_loader:
            confusion.update(model(x), y)
    print(accuracy.compute(), confusion.compute())
"""

EXAMPLES = [
    Example(before=BEFORE, after=BEFORE.replace("num_classes=3)\n\n", "num_classes=3, sync_on_compute=False)\n\n")),
    Example(before=PLAIN, after=None),
]


@rule("AD609")
def count_whole_data_once(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Count samples once that every rank evaluates.

    The metrics of torchmetrics add up what the ranks were given as soon as there is a process group. Where each of them
    was given all samples, a confusion matrix counts them as many times as there are ranks.
    """
    for site in script.counting_whole:
        fix = Fix(planned(site.source, SetArgument(site.node, "sync_on_compute", "False")))
        yield Finding(site.source, site.node, "every rank gives it all samples, and it adds the ranks' counts up", fix)
