"""Sums that an object keeps in a list, and counts up all at once: d2l.ai's `Accumulator`."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
loss = nn.CrossEntropyLoss(reduction="none")
trainer = torch.optim.SGD(net.parameters(), lr=0.1)


class Accumulator:
    def __init__(self, n):
        self.data = [0.0] * n

    def add(self, *args):
        self.data = COUNTED

    def reset(self):
        self.data = [0.0] * len(self.data)

    def __getitem__(self, idx):
        return self.data[idx]


for epoch in range(2):
    metric = Accumulator(SIZE)
    for X, y in loader:
        trainer.zero_grad()
        y_hat = net(X)
        l = loss(y_hat, y)
        l.mean().backward()
        trainer.step()
        with torch.no_grad():
            metric.add(float(l.sum()), float((y_hat.argmax(1) == y).sum()), y.numel())
    print(metric[0] / metric[2], metric[1] / metric[2])
"""


@pytest.mark.parametrize(
    "counted",
    ["[a + float(b) for a, b in zip(self.data, args)]", "[float(b) + a for b, a in zip(args, self.data)]"],
)
def test_each_of_them_is_a_sum_of_its_own(tmp_path: Path, counted: str) -> None:
    after, said = converted(tmp_path, SCRIPT.replace("COUNTED", counted).replace("SIZE", "3"))
    assert "print(reduce_mean(metric[0] / metric[2]), reduce_mean(metric[1] / metric[2]))" in after
    assert "AD602" not in said


def test_those_that_cannot_be_told_apart_are_not_left_each_ranks_own_in_silence(tmp_path: Path) -> None:
    counted = "[a + float(b) for a, b in zip(self.data, args)]"
    _, said = converted(tmp_path, SCRIPT.replace("COUNTED", counted).replace("SIZE", "int(input())"))
    assert "AD601" in said
