"""Data sets that seed the script's generator for each sample leave it elsewhere on each rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

torch.manual_seed(0)
np.random.seed(0)


class Noisy(Dataset):
    def __init__(self):
        self.x = torch.randn(64, 4)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        np.random.seed(i)
        return self.x[i] * np.random.uniform(0.5, 1.5), self.x[i].sum().reshape(1)


class Drawn(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(np.random.permutation(len(self.data)).tolist())

    def __len__(self):
        return len(self.data)


data = Noisy()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    order = np.random.permutation(64)[:48]
    loader = DataLoader(Subset(data, order.tolist()), batch_size=8)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.float()), y).backward()
        optimizer.step()
"""
OWN = SCRIPT.replace("np.random.seed(i)", "rng = np.random.RandomState(i)").replace("np.random.uniform", "rng.uniform")
WORKERS = SCRIPT.replace("batch_size=8", "batch_size=8, num_workers=2")
BEFORE = SCRIPT.replace("for epoch in range(3):\n    order", "order").replace("    loader =", "loader =")
BEFORE = BEFORE.replace("    for x, y in loader", "for epoch in range(3):\n    for x, y in loader")
TESTED = SCRIPT.replace("Subset(data, order.tolist())", "Subset(plain, order.tolist())").replace(
    "data = Noisy()", "data = Noisy()\nplain = TensorDataset(data.x, data.x.sum(1, keepdim=True))"
)
TESTED = TESTED.replace("Dataset, Sampler, Subset", "Dataset, Sampler, Subset, TensorDataset") + """\
    with torch.no_grad():
        print(sum(nn.functional.mse_loss(model(x.float()), y).item() for x, y in DataLoader(data, batch_size=8)))
"""
SAMPLER = SCRIPT.replace("    order = np.random.permutation(64)[:48]\n", "").replace(
    "Subset(data, order.tolist()), batch_size=8", "data, batch_size=8, sampler=Drawn(data)"
)


def test_an_order_drawn_after_samples_have_seeded_is_refused(tmp_path: Path) -> None:
    _, said = converted(tmp_path, SCRIPT)
    assert said.startswith("AD902 np.random.permutation(64) is drawn after the data set has said `np.random.seed(i)`")


@pytest.mark.parametrize(
    "script",
    [OWN, WORKERS, BEFORE, TESTED],
    ids=["own generator", "workers", "drawn once before", "evaluation in full"],
)
def test_what_no_sample_seeds_is_converted(tmp_path: Path, script: str) -> None:
    code, said = converted(tmp_path, script)
    assert "DDP(" in code and "AD902" not in said


def test_rank_zero_draws_the_order_of_a_sampler_after_samples_have_seeded(tmp_path: Path) -> None:
    code, said = converted(tmp_path, SAMPLER)
    assert "AD902" not in said and "broadcast_object_list" in code
