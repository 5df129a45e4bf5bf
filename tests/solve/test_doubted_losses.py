"""Of which losses it cannot be told that they are those of the whole batch, and of which it can."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
size, length = 8, 5
loader = DataLoader(TensorDataset(torch.randn(64, 5, 8), torch.randint(0, 3, (64,))), batch_size=size, shuffle=True)
memory = torch.randn(32, 8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x, y=None):
        outputs = (self.head(self.body(x).mean(1)),)
        if y is not None:
            outputs = (F.cross_entropy(outputs[0], y),) + outputs
        return outputs


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
{step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HEADS = "h = model.body(x)\n    heads = h.view(*h.shape[:-1], 2, -1)\n    loss = heads.softmax(-1).pow(2).mean()"
CHUNKS = (
    "rows = x.mean(1)\n    parts = [model.head(rows[i : i + 2]) for i in range(0, len(rows), 2)]\n"
    "    loss = F.cross_entropy(torch.cat(parts), y)"
)
COUNTED = "loss = 0\n    for i, row in enumerate(x):\n        loss += model.body(row).pow(2).mean()\n    loss /= i + 1"
IN_PLACE = (
    "for i in range(len(x)):\n        x[i] = x[i] / x[i].max()\n    loss = F.cross_entropy(model.head(x.mean(1)), y)"
)
MADE = (
    "made = []\n    for row in x:\n        best = torch.zeros(8)\n        for word in row:\n"
    "            best[int(word[0] > 0)] = word.max()\n        made.append(best)\n"
    "    loss = model.head(torch.stack(made)).pow(2).mean()"
)
LABELS = (
    "n = len(x)\n    out = model.head(torch.cat([x, x.flip(1), -x]).mean(1))\n"
    "    loss = F.cross_entropy(out, torch.tensor([0] * n + [1] * n + [2] * n))"
)

WORDS = "h = model.head(x.view(size * length, 8))\n    loss = F.cross_entropy(h.view(size, length, 3).mean(1), y)"


@pytest.mark.parametrize(
    "step",
    [
        HEADS,
        CHUNKS,
        COUNTED,
        IN_PLACE,
        MADE,
        LABELS,
        "loss = model(x, y)[0]",
        "loss, _ = model(x, y)",
        "rows = torch.arange(size)\n    loss = -model(x)[0].log_softmax(1)[rows, y].mean()",
        WORDS,
        "pick = random.sample(range(len(x)), len(x) // 2)\n    loss = F.cross_entropy(model(x[pick])[0], y[pick])",
        "loss = max(1, len(x)) * model.body(x).abs().mean() / len(x)",
    ],
)
def test_nothing_is_said_of_means_over_samples(tmp_path: Path, step: str) -> None:
    _, said = conftest.converted(tmp_path, SCRIPT.format(step=f"    {step}"))
    assert "AD602" not in said and "AD60" not in said.replace("AD601", ""), said


@pytest.mark.parametrize(
    "step",
    [
        "rows = x.mean(1)\n    loss = F.cross_entropy(model.head(rows.t().reshape(-1, 8)), y)",
        "loss = F.cross_entropy(model.head(x.mean(1)[y.argsort()]), y)",
        "loss = model.body(x).view(length, size, 8).softmax(0).pow(2).mean()",
        "w = torch.arange(len(x))[: len(x) // 2]\n    loss = (w * model(x)[0][: len(x) // 2].sum(1)).pow(2).mean()",
        CHUNKS.replace("torch.cat(parts)", "torch.cat(parts[::-1])"),
        CHUNKS.replace("rows[i : i + 2]", "rows[i : i + 4]").replace("y)", "y.repeat_interleave(2)[:-2])"),
        "w = x.mean(1)\n    for i in range(len(x)):\n        for j in range(len(x)):\n"
        "            if y[i] == y[j]:\n                w[j] = w[i]\n    loss = F.cross_entropy(model.head(w), y)",
        "h = model.body(x).mean(1)[: len(x) // 2].view(len(x), -1)\n    loss = h.softmax(1).pow(2).mean()",
        "h = torch.cat([x, -x]).view(len(x), -1)\n    loss = model.body(h[:, :8]).softmax(0).pow(2).mean()",
    ],
)
def test_what_meets_other_samples_is_told_or_gathered(tmp_path: Path, step: str) -> None:
    _, said = conftest.converted(tmp_path, SCRIPT.format(step=f"    {step}"))
    assert any(code in said for code in ("AD602", "AD606", "AD906")), said
