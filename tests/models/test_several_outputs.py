"""Models that give several outputs, as with deep supervision: how many there are is no number of samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, deep=False):
        super().__init__()
        self.deep = deep
        self.body = nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(3))

    def forward(self, x):
        x = self.body(x).relu()
        {given}


model = Net(deep=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.rand(64, 1)), batch_size=16, shuffle=True, drop_last=True)
for x, y in loader:
    outs = model(x)
    {step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
WRITTEN = "[self.heads[0](x), self.heads[1](x)]"


@pytest.mark.parametrize(
    "given",
    [
        f"return {WRITTEN}",
        "return self.heads[0](x), self.heads[1](x)",
        "return [head(x) for head in self.heads]",
        "return tuple(head(x) for head in self.heads)",
        f"if self.deep:\n            return {WRITTEN}\n        return self.heads[0](x)",
        "outs = []\n        for head in self.heads:\n            outs.append(head(x))\n        return outs",
    ],
)
@pytest.mark.parametrize(
    "step",
    [
        "loss = sum(criterion(out, y) for out in outs) / len(outs)",
        "loss = 0\n    for out in outs:\n        loss += criterion(out, y)\n    loss /= len(outs)",
        "loss = torch.stack([criterion(out, y) for out in outs]).mean()",
    ],
)
def test_a_mean_over_the_outputs_of_a_model(tmp_path: Path, given: str, step: str) -> None:
    code, said = converted(tmp_path, SCRIPT.format(given=given, step=step))
    assert step in code and "    loss.backward()" in code and "reduce_mean(loss.item())" in code
    assert "AD602" not in said
