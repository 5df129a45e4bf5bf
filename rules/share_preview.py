from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Recompose
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript

from ._preamble import planned
from ._previews import SHARE, shared_rows, sharing_rows

PREVIEW = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

probe = torch.randn(16, 4)
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(model(probe).mean().item())
"""


def _shared(text: str) -> str:
    text = text.replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    text = text.replace("\n\n", "\n\n\n" + SHARE.replace("{d}", "dist").replace("{torch}", "torch"), 1)
    return text.replace("model(probe)", "share_rows(model, probe)")


EXAMPLES = [
    Example(before=PREVIEW, after=_shared(PREVIEW)),
    Example(before=PREVIEW.replace("    print", "    model.eval()\n    print"), after=None),
    Example(before=PREVIEW.replace("BatchNorm1d", "LayerNorm"), after=None),
]


@rule("AD607")
def share_preview(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Share rows that all ranks have out over them where they run through a model in training mode.

    Pictures of a fixed noise after each epoch, from a generator that is never put into evaluation mode, are counted by
    its batch normalisation. Statistics over all ranks would count the same rows once for each rank, and running_var
    would be another one.
    """
    if not script.trains:
        return
    hoisted = {site.node for site, _ in script.shards.hoists}
    for call in script.previews:
        assert isinstance(call.node, ast.Call)
        helper = sharing_rows(script, context, call.source)
        if not hoisted.isdisjoint([call.node, *call.source.ancestors(call.node)]):
            edits = helper  # written anew, ahead of what rank 0 does
        else:
            edits = (*helper, *planned(call.source, Recompose(call.node, *shared_rows(call.node))))
        message = "batch statistics over all ranks would count the rows that all have once for each"
        yield Finding(call.source, call.node, message, Fix(edits))
