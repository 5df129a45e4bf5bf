"""Batch statistics of what the samples of several ranks have in common, such as neighbours in a graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
features, labels = torch.randn(64, 8).to(device), torch.randint(2, (64,)).to(device)
near = torch.randint(64, (64, 4)).to(device)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.norm = nn.{norm}(16)
        self.head = nn.Linear(16, 2)

    def forward(self, nodes):
        {found}
        h = torch.relu(self.norm(self.body(features[ids])))
        return self.head(h[places].mean(1))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for nodes in DataLoader(torch.arange(64), batch_size=8, shuffle=True):
        loss = F.cross_entropy(model(nodes), labels[nodes])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
UNIQUE = "ids, places = torch.unique(near[nodes], return_inverse=True)"
SETS = (
    "ids = sorted({int(v) for row in near[nodes] for v in row})\n"
    "        places = torch.tensor([[ids.index(int(v)) for v in row] for row in near[nodes]])\n"
    "        ids = torch.tensor(ids)"
)
SAID = "what samples of several ranks have in common counts once for each of them"


@pytest.mark.parametrize("found", [UNIQUE, SETS], ids=["unique", "sets"])
def test_what_is_in_common_is_warned_of(tmp_path: Path, found: str) -> None:
    """It was converted without a word, and results differed."""
    assert SAID in converted(tmp_path, SCRIPT.format(norm="BatchNorm1d", found=found))[1]


@pytest.mark.parametrize("norm", ["LayerNorm", "BatchNorm1d"])
def test_rows_of_its_own_are_not(tmp_path: Path, norm: str) -> None:
    found = UNIQUE if norm == "LayerNorm" else "ids, places = nodes, torch.arange(len(nodes)).view(-1, 1)"
    assert SAID not in converted(tmp_path, SCRIPT.format(norm=norm, found=found))[1]
