"""Tensors of a batch with different numbers of axes: the samples of one meet another axis of the other."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Waves(Dataset):
    def __init__(self, n):
        self.waves = [np.random.randn(9, 5).astype(np.float32) for _ in range(n)]
        self.targets = torch.rand(n)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        wave = self.waves[index]
        if len(wave) < 8:
            piece = np.pad(wave, ((0, 8 - len(wave)), (0, 0)))
        else:
            piece = wave[:8]
        return piece, self.targets[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 5, batch_first=True)
        self.head = nn.Linear(5, 1)

    def forward(self, x):
        out, state = self.rnn(x)
        return {gives}


loader = DataLoader({data}, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
for epoch in range(2):
    for x, y in loader:
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
PAIR = "TensorDataset(torch.randn(64, 8, 5), torch.rand(64))"


def converted(folder: Path, gives: str, loss: str, data: str) -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(gives=gives, loss=loss, data=data))


@pytest.mark.parametrize("data", [PAIR, "Waves(64)"])
@pytest.mark.parametrize(
    ("gives", "loss"),
    [
        ("self.head(out[:, -1])", "criterion(model(x), y)"),
        ("self.head(out[:, -1])", "(model(x) - y).pow(2).mean()"),
        ("self.head(out[:, -1])", "model(x).sub(y).abs().mean()"),
        ("self.head(out[:, -1]).squeeze(1)", "F.l1_loss(model(x), y.view(-1, 1))"),
    ],
)
def test_rows_that_are_broadcast_are_those_of_all_ranks(tmp_path: Path, gives: str, loss: str, data: str) -> None:
    after, _ = converted(tmp_path, gives, loss, data)
    assert "RowsOfAllRanks.apply(model(x))" in after and "RowsOfAllRanks.apply(y" in after


def test_shapes_that_a_data_set_of_the_project_gives(tmp_path: Path) -> None:
    """`np.pad` tells of how many axes a sample is, and so does a batch of an LSTM."""
    after, _ = converted(tmp_path, "out.unsqueeze(1)", "F.mse_loss(model(x), x)", "Waves(64)")
    assert "F.mse_loss(RowsOfAllRanks.apply(model(x)), RowsOfAllRanks.apply(x))" in after


@pytest.mark.parametrize(
    ("gives", "loss"),
    [
        ("self.head(out[:, -1])", "criterion(model(x).view(-1), y)"),
        ("self.head(out[:, -1])", "criterion(model(x), y.unsqueeze(1))"),
        ("self.head(state[0][-1]).squeeze(1)", "criterion(model(x), y)"),
        ("out", "(model(x) * y.view(-1, 1, 1)).pow(2).mean()"),
        ("out", "(model(x) - y[:, None, None]).pow(2).mean()"),
        ("out", "(y * (model(x) - x).pow(2).mean((1, 2))).mean()"),
    ],
)
def test_rows_that_meet_their_own_stay_as_they_are(tmp_path: Path, gives: str, loss: str) -> None:
    after, said = converted(tmp_path, gives, loss, PAIR)
    assert "RowsOfAllRanks" not in after and "AD602" not in said
