"""Functions that a loss is computed by, of the rows of all ranks, and a report as well: that is given them, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def score(out, y):
    {score}


torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    scores = []
    for x, y in loader:
        out = model(x).squeeze(-1)
        loss = (out - y).pow(2).mean() + 0.1 * score(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.append(score(out.detach(), y).item())
    print(epoch, loss.item(), sum(scores) / len(scores))
"""
SCORES = [
    "return out.std() / (y.abs().mean() + 1)",
    "mean, other = out.mean(), y.mean()\n    return ((out - mean) * (y - other)).mean() / (out.var() + y.var())",
    "total = y.abs().sum()\n    return (out - out.mean()).abs().sum() / total",
]


@pytest.mark.parametrize("score", SCORES)
def test_a_report_is_given_the_rows_of_all_ranks(score: str, tmp_path: Path) -> None:
    after, said = converted(tmp_path, SCRIPT.format(score=score))
    assert "reports" not in said and "AD602" not in said
    assert "RowsOfAllRanks.apply(" in after or "OverRanks" in after


@pytest.mark.parametrize("score", SCORES)
def test_training_and_reports_are_the_same(score: str, tmp_path: Path, zygote: Zygote | None) -> None:
    assert differences(tmp_path, zygote, SCRIPT.format(score=score)) is None
