from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

REFUSED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 4))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        similarity = nn.functional.dropout(model(x) @ model(y).T)
        loss = nn.functional.cross_entropy(similarity, torch.arange(len(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

EXAMPLES = [
    Example(before=REFUSED, after=REFUSED),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD906")
def refuse_pairwise_loss(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a loss over pairs of samples beside a sum over samples.

    A contrastive loss compares every sample of the batch with every other; a rank sees only its own share. Where AD606
    cannot gather the rows of all ranks so that the loss becomes that of the batch, they are to be gathered by hand. The
    message names the operation by which samples begin to meet, or says that it is not known how the loss depends on
    them. In a branch that training does not come to, by its test, such an operation is a warning.
    """
    yield from raised(script, "AD906")
