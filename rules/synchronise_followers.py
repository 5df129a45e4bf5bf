from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import InsertAfter
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import normalised_alone, planned, synchronised

FOLLOWED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)).cuda()
target = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for (x,) in loader:
        x = x.cuda()
        with torch.no_grad():
            wanted = target(x)
        loss = nn.functional.mse_loss(model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(target.parameters(), model.parameters()):
            slow.data.mul_(0.99).add_(fast.data, alpha=0.01)
"""
SYNCHRONISED = """\
if next(target.parameters()).is_cuda:  # BatchNorm over the whole batch; SyncBatchNorm needs a GPU
    target = nn.SyncBatchNorm.convert_sync_batchnorm(target)
"""

EXAMPLES = [
    Example(before=FOLLOWED, after=FOLLOWED.replace("optimizer = torch", f"{SYNCHRONISED}optimizer = torch", 1)),
    Example(before=FOLLOWED.replace("optimizer = torch", "target.eval()\noptimizer = torch", 1), after=None),
    Example(before=FOLLOWED.replace("nn.BatchNorm1d", "nn.LayerNorm"), after=None),
]


@rule("AD410")
def synchronise_followers(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Give models that follow others batch statistics over all ranks, too.

    The target network of BYOL, the key encoder of MoCo or a mean teacher is no model that trains, and nothing wraps it.
    In training mode its batch normalisation counts the samples that it is given, which are those of one rank.
    """
    if not script.trains or script.distributed:
        return
    for place in script.followers:
        target = place.source.code(place.target)
        lines, imports = synchronised(script, context, place.source, target, place.each, not place.move)
        fix = Fix((*imports, *planned(place.source, InsertAfter(place.statement, lines))))
        message = f"{target} does not train, and would keep statistics of this rank's samples"
        yield Finding(place.source, place.statement, message, fix)
        yield from normalised_alone(script, place.source, place.statement)
