"""Sums that several branches add to one object, each in its own way: they are made global once."""

from __future__ import annotations

from pathlib import Path

from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Accumulator:
    def __init__(self, n):
        self.data = [0.0] * n

    def add(self, *args):
        self.data = [a + float(b) for a, b in zip(self.data, args)]

    def __getitem__(self, idx):
        return self.data[idx]


def accuracy(y_hat, y):
    return float((y_hat.argmax(axis=1) == y).sum())


def train_epoch(net, train_iter, loss, updater):
    metric = Accumulator(3)
    for X, y in train_iter:
        y_hat = net(X)
        l = loss(y_hat, y)
        if isinstance(updater, torch.optim.Optimizer):
            updater.zero_grad()
            l.backward()
            updater.step()
            metric.add(float(l) * len(y), accuracy(y_hat, y), y.size().numel())
        else:
            l.sum().backward()
            updater(X.shape[0])
            metric.add(float(l.sum()), accuracy(y_hat, y), y.numel())
    return metric[0] / metric[2], metric[1] / metric[2]


torch.manual_seed(0)
train_set = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
train_iter = DataLoader(train_set, batch_size=8, shuffle=True)
net = nn.Linear(4, 3)
updater = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    print(train_epoch(net, train_iter, nn.CrossEntropyLoss(), updater))
"""


def test_sums_that_are_global_when_they_are_added_are_so_when_they_are_read(
    tmp_path: Path, zygote: Zygote | None
) -> None:
    """d2l.ai: a mean in one branch, a sum in the other; accuracies were reduced again, and counts multiplied."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SCRIPT)
    code, _ = converted(tmp_path, SCRIPT)
    after.write_text(code)
    assert "return reduce_mean(metric[0] / metric[2]), reduce_mean(metric[1] / metric[2])" in code
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
