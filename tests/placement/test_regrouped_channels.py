"""Rows of what a convolution gives that hold other numbers than those of one sample each."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import argparse
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Critic(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.size, self.width, channels = size, width, 2 * width
        self.first = nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.second = nn.Conv2d(width, {channels}, 4, stride={stride}, padding=1)
        self.out = nn.Linear({numbers}, 1)

    def forward(self, x):
        x = F.leaky_relu(self.first(x))
        x = F.max_pool2d(F.leaky_relu(self.second(x)), 2)
        x = x.view(-1, {numbers})
        return self.out(x)


parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
args = parser.parse_args()
loader = DataLoader(TensorDataset(torch.randn(32, 3, 32, 32)), batch_size=8, shuffle=True)
size, width = 32, args.width
critic = Critic(size, width)
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for (x,) in loader:
    loss = critic(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TOLD = "it is not known whether it lays several samples of a rank into each row"


@pytest.mark.parametrize(
    ("channels", "stride", "numbers"),
    [
        ("2 * width", 2, "16 * 4 * 4"),
        ("16", 2, "16 * 4 * 4"),
        ("16", 2, "256"),
        ("2 * width", 2, "2 * args.width * (size // 8) ** 2"),
        ("16", 2, "16 * 5 * 3"),
        ("2 * width", 2, "self.width * 2 * (self.size // 8) ** 2"),
        ("channels", 2, "self.width * 2 * (self.size // 8) ** 2"),
        ("16", 2, "16"),
        ("16", 2, "1"),
        ("16", 2, "4"),
    ],
)
def test_all_numbers_of_a_sample(tmp_path: Path, channels: str, stride: int, numbers: str) -> None:
    _, said = conftest.converted(tmp_path, SCRIPT.format(channels=channels, stride=stride, numbers=numbers))
    assert TOLD not in said


@pytest.mark.parametrize(("channels", "stride", "numbers"), [("16", 1, "100"), ("16", 1, "24"), ("12", 1, "9 * 10")])
def test_numbers_of_several_samples(tmp_path: Path, channels: str, stride: int, numbers: str) -> None:
    text = SCRIPT.replace("nn.Linear({numbers}, 1)", "nn.Linear(128, 1)")
    _, said = conftest.converted(tmp_path, text.format(channels=channels, stride=stride, numbers=numbers))
    assert TOLD in said
