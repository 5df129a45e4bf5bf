"""Numbers that are as large as a batch, or as many, and have nothing to do with it."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 4)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
{ahead}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    {step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize(
    ("ahead", "step"),
    [
        ("mixing = torch.rand(8, 8)", "loss = F.mse_loss(model(x @ mixing), y)"),
        ("mixing = torch.ones(8, 4)", "loss = F.mse_loss(model(x), y + x @ mixing)"),
        ("noise = torch.rand(8)", "loss = F.mse_loss(model(x * noise), y)"),
        (
            'model.register_parameter("scale", nn.Parameter(torch.ones(4)))',
            "loss = F.mse_loss(model(x) * model.scale, y)",
        ),
    ],
)
def test_are_left_as_they_are(ahead: str, step: str, tmp_path: Path, zygote: Zygote | None) -> None:
    """A tensor of eight features was taken for one of eight samples, and a parameter of a sequence for a layer."""
    script = SCRIPT.format(ahead=ahead, step=step)
    code, said = conftest.converted(tmp_path, script)
    assert "AD602" not in said and "RowsOfAllRanks" not in code and ahead in code
    assert conftest.differences(tmp_path, zygote, script) is None
