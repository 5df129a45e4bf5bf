from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, Severity, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

SEQUENCES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 5, 4), torch.randn(64, 5, 8))
loader = DataLoader(train_set, batch_size=8, shuffle=True)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8)

    def forward(self, x):
        output, _ = self.lstm(x)
        return output


model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CHOSEN = PLAIN.replace("mse_loss(model(x), y)", "poisson_nll_loss(model(x)[y > 0], y[y > 0])")

EXAMPLES = [
    Example(before=SEQUENCES, after=SEQUENCES),  # takes the samples for the steps of a sequence
    Example(before=SEQUENCES.replace("nn.LSTM(4, 8)", "nn.LSTM(4, 8, batch_first=True)"), after=None),
    Example(before=CHOSEN, after=None),  # computed from the rows of all ranks (AD606)
    Example(before=CHOSEN.replace("y[y > 0])", 'y[y > 0], reduction="sum")'), after=None),
]

IN_PIECES = (
    "each piece of so many samples of a batch has a loss of its own: that is right where a rank's share of the batch "
    "is a multiple of so many, and its last piece counts for too much elsewhere; take as many pieces on any number "
    "of ranks, `x.chunk(n)`"
)


@rule("AD602")
def check_loss_is_mean(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say where averaging gradients is not exact.

    Averaging over ranks gives the gradient of a mean over samples. A mean that is weighted by class, or leaves tokens
    out, divides by what happens to be in each rank's share. Where it can neither be weighed (AD604) nor computed from
    the rows of all ranks (AD606), the difference is small, but it is there. So is that of
    batch statistics over data that every rank passes in full through a model in training mode, and that of a recurrent
    layer that takes the samples of a batch for the steps of a sequence.
    """
    for site in script.pieces[:1]:
        yield Finding(site.source, site.node, IN_PIECES, severity=Severity.WARNING)
    yield from raised(script, "AD602")
