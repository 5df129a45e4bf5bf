"""`squeeze()` without an axis, where a rank may have one sample."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return {given}


data = TensorDataset(torch.randn(64, 4), torch.rand(64))
loader = DataLoader(data, batch_size={size}, shuffle=True)
test_loader = DataLoader(data, batch_size={tested})
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = F.mse_loss({out}, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(F.mse_loss(model(x).squeeze(), y).item() for x, y in test_loader))
"""
COLUMN = "self.head(torch.relu(self.body(x)))"
WARNED = "drops the axis of the samples as well"


def script(given: str = COLUMN, out: str = "out.squeeze()", size: int = 16, tested: int = 16) -> str:
    return SCRIPT.format(given=given, out=out, size=size, tested=tested)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (script(), "F.mse_loss(out.squeeze(dim=1), y)"),
        (script(out="torch.squeeze(out)"), "F.mse_loss(torch.squeeze(out, dim=1), y)"),
        (script(given=f"{COLUMN}.squeeze()", out="out"), f"return {COLUMN}.squeeze(dim=1)"),
    ],
)
def test_the_axis_is_named(tmp_path: Path, text: str, expected: str) -> None:
    """Of the evaluation, which every rank makes in full, it is not."""
    code, said = converted(tmp_path, text)
    assert expected in code and "AD208 a rank may have one sample" in said and WARNED not in said
    assert "F.mse_loss(model(x).squeeze(), y)" in code


@pytest.mark.parametrize(
    "text",
    [
        script(given=f"{COLUMN}.squeeze()", out="out", tested=1),  # the evaluation asks for a number
        script(given="F.adaptive_avg_pool1d(self.body(x).unsqueeze(1), 1)"),
        script(out="torch.from_numpy(out.detach().numpy().squeeze()) + 0 * out[:, 0]"),
    ],
)
@pytest.mark.parametrize("size", [64, 4])
def test_what_has_other_axes_is_left(tmp_path: Path, text: str, size: int) -> None:
    """It is warned of, where batches are so small that a rank may have one sample."""
    code, said = converted(tmp_path, text.replace("batch_size=16", f"batch_size={size}"))
    assert "dim=1" not in code and (WARNED in said) == (size == 4)
