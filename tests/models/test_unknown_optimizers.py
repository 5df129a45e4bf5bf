"""Optimizers of libraries that nothing is known of: what is made of parameters, stepped and cleared of gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
IMPORTS

x = torch.randn(48, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
MADE
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "made"),
    [
        ("from radam import RAdam", "optimizer = RAdam(model.parameters(), 1e-2)"),
        ("import ranger", 'optimizer = ranger.Ranger([{"params": model.parameters(), "lr": 1e-2}])'),
        ("from optim.lamb import Lamb", "optimizer = Lamb(list(model.parameters()), lr=1e-2)"),
    ],
)
def test_what_steps_is_an_optimizer(imports: str, made: str, tmp_path: Path) -> None:
    text, said = converted(tmp_path, SCRIPT.replace("IMPORTS", imports).replace("MADE", made))
    assert "model = DDP(nn.Linear(4, 1)" in text
    assert "AD9" not in said


def test_an_average_of_parameters_is_none(tmp_path: Path) -> None:
    average = "average = ExponentialMovingAverage(model.parameters(), 0.99)"
    script = SCRIPT.replace("IMPORTS", "from torch_ema import ExponentialMovingAverage").replace("MADE", average)
    script = script.replace("optimizer.step()", "average.update()").replace(
        "optimizer.zero_grad()", "model.zero_grad()"
    )
    assert "cannot see that an optimizer steps" in converted(tmp_path, script)[1]
