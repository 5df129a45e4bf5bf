"""Ranks wait for what rank 0 writes before they read it, once for each time it writes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import json
import os
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path, columns=None):
        self.rows = {read}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.as_tensor(self.rows[index])
        return row[:2], row[2:]


def main():
    torch.manual_seed(0)
    table = torch.randn(64, 3).numpy()
    {written}
    train_set = Rows("train.rows")
    val_set = Rows(path="val.rows")
    loader = DataLoader(train_set, batch_size=8, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=8)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in val_loader))


main()
"""
BARRIER = "    dist.barrier()  # rank 0 has written it\n    train_set = "


@pytest.mark.parametrize(
    ("read", "written", "waits"),
    [
        (
            "pd.read_csv(path).values",
            'pd.DataFrame(table).to_csv("train.rows"), pd.DataFrame(table).to_csv("val.rows")',
            1,
        ),
        ("np.load(path)", 'np.save("train.rows", table)\n    np.save("val.rows", table)', 1),
        ("np.load(path)", 'folder = os.getcwd()\n    np.save(folder + "/train.rows", table)', 1),
        ("json.load(open(path))", 'json.dump(table.tolist(), open(os.path.join(".", "train.rows"), "w"))', 1),
        ("np.load(path)", 'np.save("other.rows", table)', 0),
        ("np.load(path)", "pass", 0),
        ("pd.read_csv(path).values", 'np.save(f"{len(table)}.npy", table)', 0),
    ],
)
def test_what_a_data_set_reads(tmp_path: Path, read: str, written: str, waits: int) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.format(read=read, written=written))
    assert after.count("rank 0 has written it") == waits
    assert (BARRIER in after) == bool(waits)
