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


EVALUATED = """\
from medmnist import Evaluator

evaluator = Evaluator("pathmnist", "test")
auc, accuracy = evaluator.evaluate({given})
print(auc, accuracy)
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("weights, folder", "weights, folder if dist.get_rank() == 0 else None"),
        ("weights, save_folder=folder", "weights, save_folder=folder if dist.get_rank() == 0 else None"),
        ("weights, None", "weights, None"),
        ("weights", "weights"),
    ],
)
def test_a_folder_that_a_library_is_told_beside_what_all_ranks_want(tmp_path: Path, given: str, expected: str) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT + 'folder = "scores"\n' + EVALUATED.format(given=given))
    assert f"evaluator.evaluate({expected})\n" in after
    again, _ = conftest.converted(tmp_path, after)
    assert again == after
