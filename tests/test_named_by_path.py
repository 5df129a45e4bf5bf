"""Classes that settings name by their path: `{"_target_": "torch.optim.SGD", "lr": 0.1}`."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import importlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def instantiate(config, *args):
    config = dict(config)
    path = config.pop("_target_")
    {cut}
    return getattr(importlib.import_module(module), name)(*args, **config)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = instantiate({{"_target_": "torch.optim.SGD", "lr": 0.1}}, model.parameters())
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("cut", ['module, name = path.rsplit(".", 1)', 'module, _, name = path.rpartition(".")'])
def test_an_optimizer(tmp_path: Path, cut: str) -> None:
    """It was refused, since it could not be seen which optimizer is made."""
    after, report = conftest.converted(tmp_path, SCRIPT.format(cut=cut))
    assert "model = DDP(nn.Linear(4, 1))" in after
    assert "AD904" not in report
