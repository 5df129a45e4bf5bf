"""A batch size that a model keeps for itself becomes a rank's share where the model shapes its state by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, hidden, batch_size):
        super().__init__()
        self.batch_size = batch_size
        self.hidden = hidden
        self.rnn = nn.GRU(4, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def start(self, size=None):
        {shaped}

    def forward(self, x):
        y, self.state = self.rnn(x, self.state)
        return self.out(y[:, -1])


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
opt = parser.parse_args()
settings = {{"batch_size": opt.batch_size, "shuffle": True, "drop_last": True}}
loader = DataLoader(TensorDataset(torch.randn(64, 5, 4), torch.randn(64, 1)), {given})
model = Net(8, opt.batch_size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    model.start()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    model.start(64)
    print(model(torch.zeros(64, 5, 4)).mean())
"""
TOLD = """\
if size:
            batch_size = size
        else:
            batch_size = self.batch_size
        self.state = torch.zeros(1, batch_size, self.hidden)"""
OWN = "self.state = torch.zeros(1, self.batch_size, self.hidden)"


@pytest.mark.parametrize("given", ["**settings", "batch_size=opt.batch_size, shuffle=True"])
@pytest.mark.parametrize(
    ("shaped", "expected"),
    [
        (
            TOLD,
            "batch_size = self.batch_size // dist.get_world_size()\n        self.state = torch.zeros(1, batch_size, ",
        ),
        (OWN, "torch.zeros(1, self.batch_size // dist.get_world_size(), self.hidden)"),
    ],
)
def test_a_size_that_a_model_keeps(tmp_path: Path, given: str, shaped: str, expected: str) -> None:
    assert expected in converted(tmp_path, SCRIPT.format(shaped=shaped, given=given))[0]


GENERATOR = """\
import torch
from torch import nn

SIZE = 8


def batches():
    while True:
        first = torch.zeros((SIZE, 1))
        drawn = torch.randint(0, 9, (SIZE, 4))
        yield torch.cat((first, drawn), 1), torch.ones(SIZE, drawn.shape[1])


model = nn.Linear(5, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    x, mask = next(batches())
    loss = (model(x) * mask).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_of_several_parts(tmp_path: Path) -> None:
    """What lies beside the part that is drawn is a rank's share of it, too."""
    code, _ = converted(tmp_path, GENERATOR)
    assert "torch.zeros((SIZE // dist.get_world_size(), 1))" in code
    assert "torch.ones(SIZE // dist.get_world_size(), drawn.shape[1])" in code
    assert "(SIZE, 4))[dist.get_rank() :: dist.get_world_size()]" in code
