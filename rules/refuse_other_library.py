from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._borrowed import departures
from ._examples import PLAIN

REPORTED = """\
import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(0)
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(train_set, batch_size=8, sampler=sampler)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if hvd.rank() == 0:
        print(epoch)
"""

EXAMPLES = [
    Example(
        before=REPORTED,
        after=REPORTED,
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


@rule("AD908")
def refuse_other_library(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse what plain PyTorch has no counterpart for in another distribution library.

    Horovod's Adasum combines gradients in its own way, FairScale's pipelines cut a model into stages: a
    conversion would train something else. The message names the line.
    """
    for each in departures(script, context, "AD908"):
        yield Finding(each.source, each.node, each.message, Fix(each.edits) if each.edits else None, each.severity)
