"""What libraries' objects say of themselves is not known: what follows a test of it runs, and is reduced."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchtools.stopping import EarlyStopping

loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.rand(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stopper = EarlyStopping(patience=3)
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if {test}:
        break
    print(epoch, total / len(loader))
"""


@pytest.mark.parametrize(
    "test", ["stopper.early_stop", "stopper.best is None", "not stopper.running", "stopper", "EarlyStopping.ended"]
)
def test_what_is_printed_behind_a_test(tmp_path: Path, test: str) -> None:
    after, _ = converted(tmp_path, SCRIPT.format(test=test))
    assert "reduce_mean(total / len(loader))" in after
