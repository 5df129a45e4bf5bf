"""Files that rank 0 alone writes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import json
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = model.weight.detach().cpu().numpy()
"""


@pytest.mark.parametrize(
    "statement",
    ['pickle.dump(weights, open("weights.pkl", "wb"))', 'json.dump(weights.tolist(), open("weights.json", "w"))'],
)
def test_a_file_that_is_opened_where_it_is_written(tmp_path: Path, statement: str) -> None:
    """It is guarded as a whole."""
    after, _ = conftest.converted(tmp_path, SCRIPT + statement + "\n")
    assert f"if dist.get_rank() == 0:\n    {statement}\n" in after
