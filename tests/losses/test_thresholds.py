"""Samples that are told apart, or weighed, by what is computed of the whole batch."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        losses = F.cross_entropy(model(x), y, reduction="none")
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
STEPS = [
    "loss = (losses * (losses > losses.mean()).float()).mean()",
    "loss = losses[losses >= losses.detach().kthvalue(3).values].sum() / 6",
    "middle = losses.detach().median()\n        loss = (losses * (losses <= middle).float()).mean()",
    "loss = losses[losses < losses.max() * 0.9].sum() / 8",
    "ordered, _ = losses.sort()\n        loss = losses[losses <= ordered[3]].mean()",
    "loss = (losses / torch.bincount(y, minlength=4)[y]).sum()",
]


@pytest.mark.parametrize("step", STEPS)
def test_losses_beside_a_number_of_the_whole_batch(tmp_path: Path, step: str, zygote: Zygote | None) -> None:
    (tmp_path / "converted").mkdir()
    after, said = conftest.converted(tmp_path, SCRIPT.format(step=step))
    assert "AD602" not in said
    (tmp_path / "converted" / "train.py").write_text(after)
    before, converted = tmp_path / "train.py", tmp_path / "converted" / "train.py"
    verdict = verify(before, converted, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize(
    "step", ["loss = losses[losses > 0.5].sum() / 8", "loss = (losses * (losses > 1).float()).mean()"]
)
def test_a_number_that_all_ranks_have(tmp_path: Path, step: str) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.format(step=step))
    assert "RowsOfAllRanks" not in after
