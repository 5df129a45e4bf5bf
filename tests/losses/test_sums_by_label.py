"""Sums over a batch, one for each class, and orders of its samples, that losses go by: those of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
COUNTS = "counts = torch.bincount(y, minlength=3).clamp(min=1)\n"
AWAY = "loss = F.cross_entropy(out, y) + (out - (sums / counts[:, None])[y]).pow(2).mean()"
EACH = 'F.cross_entropy(out, y, reduction="none")'
SUMS = {
    "prototypes": f"sums = torch.zeros(3, 3).index_add(0, y, out)\n{COUNTS}means = sums / counts[:, None]\n"
    "loss = F.cross_entropy(out, y) + (out - means[y]).pow(2).mean()",
    "prototypes, in place": f"sums = torch.zeros(3, 3)\nsums = sums.index_add(0, y, out)\n{COUNTS}{AWAY}",
    "mean of each class": f"sums = torch.zeros(3).scatter_add(0, y, {EACH})\n"
    "counts = torch.zeros(3).scatter_add(0, y, torch.ones(len(y)))\nloss = (sums / counts.clamp(min=1)).mean()",
    "scores of each class": f"sums = F.one_hot(y, 3).float().T @ out\n{COUNTS}{AWAY}",
    "hard half of an order": f"each = {EACH}\norder = each.argsort(descending=True)\n"
    "loss = each[order][: len(each) // 2].mean()",
    "hard ones of sorted losses": f"each, _ = torch.sort({EACH})\nloss = each[4:].mean()",
    "sorted, and all of them": "order = y.argsort()\nloss = F.cross_entropy(out[order], y[order])",
    "targets as many as a batch": "loss = F.binary_cross_entropy_with_logits(out.mean(1), torch.ones(8))",
}


@pytest.mark.parametrize("name", SUMS)
def test_losses_are_those_of_the_batch(tmp_path: Path, zygote: Zygote | None, name: str) -> None:
    text = SCRIPT.replace("{step}", SUMS[name].replace("\n", "\n        "))
    assert differences(tmp_path, zygote, text) is None


def test_what_is_computed_of_sums_and_not_followed_is_told(tmp_path: Path) -> None:
    """The logarithm of a sum that each rank has of its own."""
    step = "sums = torch.zeros(3).scatter_add(0, y, out.exp().mean(1))\nloss = sums.log().mean() + out[0].sum()"
    after, said = converted(tmp_path, SCRIPT.replace("{step}", step.replace("\n", "\n        ")))
    assert "AD602" in said or "OfAllRanks" in after
