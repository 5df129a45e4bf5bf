"""Passes over the training data once training is done: they have an order of their own, as those of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.optim import swa_utils
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fit(batches):
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


for epoch in range(2):
    fit(loader)
    average.update_parameters(model)
{after}
torch.save(average.state_dict(), "average.pt")
"""
NEXT = "loader.sampler.set_epoch(loader.sampler.epoch + 1)\n"


@pytest.mark.parametrize(
    "after",
    [
        "update_bn(loader, average)",
        "swa_utils.update_bn(loader, average, device='cpu')",
        "swa_utils.update_bn(loader=loader, model=average)",
        "print(len(loader))\nupdate_bn(loader, average)",
    ],
)
def test_statistics_of_an_averaged_model(tmp_path: Path, after: str) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(after=after))
    assert NEXT + after.splitlines()[-1].split("(")[0] in code


def test_other_data_have_no_other_order(tmp_path: Path) -> None:
    after = "update_bn(DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=8), average)"
    code, _ = converted(tmp_path, SCRIPT.format(after=after))
    assert "sampler.epoch + 1" not in code.partition("average.update_parameters")[2]


def test_one_more_pass_that_trains(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(after="fit(loader)"))
    assert code.count("set_epoch(") == 1 and "sampler.epoch + 1" in code.partition("for epoch")[0]
    after = "for x, y in loader:\n    nn.functional.mse_loss(model(x), y).backward()\noptimizer.step()"
    code, _ = converted(tmp_path, SCRIPT.format(after=after))
    assert "set_epoch" in code.partition("average.update_parameters")[2]
