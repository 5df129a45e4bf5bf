"""Losses that an object keeps by name: those of an evaluation lie where those of training do."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Losses:
    def __init__(self):
        self.parts = {}

    def __call__(self, out, y):
CALL

torch.manual_seed(0)
x, y = torch.randn(47, 4), torch.randn(47, 1)
train_loader = DataLoader(TensorDataset(x[:40], y[:40]), batch_size=8, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=16)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = Losses()
for epoch in range(2):
    for x, y in train_loader:
        loss = losses(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = 0.0
    with torch.no_grad():
        for x, y in valid_loader:
            losses(model(x), y)
            total += losses.parts["mse"].item() * len(x)
    print(epoch, total / 7)
"""
KEPT = """\
        self.parts["mse"] = nn.functional.mse_loss(out, y)
        self.parts["l1"] = nn.functional.l1_loss(out, y)
"""


@pytest.mark.parametrize(
    "answer", ['self.parts["mse"] + 0.5 * self.parts["l1"]', "sum(self.parts.values())", 'self.parts.pop("l1")']
)
def test_an_evaluation_stays_whole(answer: str, tmp_path: Path) -> None:
    """Its samples reach no gradient, whatever lies in that dict."""
    text, said = converted(tmp_path, HEAD.replace("CALL\n", f"{KEPT}        return {answer}\n\n"))
    assert text.count("DistributedSampler(") == 1
    assert "valid_loader = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=16)" in text
    assert "warning" not in said


def test_what_is_written_last_is_read(tmp_path: Path) -> None:
    """Also where the evaluation says nowhere that it wants no gradients."""
    script = HEAD.replace("CALL\n", f'{KEPT}        return self.parts["mse"]\n\n')
    text, _ = converted(tmp_path, script.replace("with torch.no_grad()", "if True"))
    assert text.count("DistributedSampler(") == 1
