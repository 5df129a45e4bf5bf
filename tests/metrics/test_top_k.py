"""How often a sample's label is among the best guesses: samples along the second axis, of which some rows are taken."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq({labels}.expand_as(pred))
    found = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
        found.append(correct_k.mul_(100.0 / target.size(0)))
    return found


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 4, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def converted(folder: Path, step: str, labels: str = "target.view(1, -1)") -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(step=indent(step, " " * 8), labels=labels))


@pytest.mark.parametrize("labels", ["target.view(1, -1)", "target.reshape(1, -1)", "target[None]"])
def test_accuracies_in_percent(tmp_path: Path, labels: str) -> None:
    """Only where they are printed does it matter that they are those of all ranks."""
    step = "loss = F.cross_entropy(out, y)\nprint(accuracy(out, y, (1, 2))[1].item())"
    code, said = converted(tmp_path, step, labels)
    assert "print(reduce_mean(accuracy(out, y, (1, 2))[1].item()))" in code
    assert "AD601 reports" not in said


def test_samples_in_a_row_depend_on_each_other(tmp_path: Path) -> None:
    """A softmax over them is that of the whole batch."""
    step = "share = F.softmax(out[:, 0].reshape(1, -1), 1)\nloss = (share * out[:, 1]).sum()\nprint(loss.item())"
    code, _ = converted(tmp_path, step)
    assert "RowsOfAllRanks.apply(" in code and "print(loss.item())" in code
