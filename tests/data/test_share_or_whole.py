"""Numbers that are a rank's share in training and those of all samples in evaluation, which one function reports."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def report(hits, number):
    numbers = {"l": number}
    n = numbers[hits[0]]
    print(hits[1] / n)


def train(loader):
    seen = 0
    for x, y in loader:
        size = x.size(0)
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = seen + size
        report(("l", (out.argmax(1) == y).sum().item()), size)
    report(("l", 1), seen)


def test(loader):
    seen = 0
    for x, y in loader:
        seen = seen + x.size(0)
        report(("l", (model(x).argmax(1) == y).sum().item()), x.size(0))
    report(("l", 1), seen)


data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(DataLoader(data, batch_size=8, shuffle=True))
with torch.no_grad():
    test(DataLoader(data, batch_size=16))
"""
READ = "    n = numbers[hits[0]]\n"


READS = ["    n = number\n", READ, "    n = number + 0\n"]


@pytest.mark.parametrize("added", ["seen = seen + size", "seen += size"])
@pytest.mark.parametrize("read", READS)
def test_a_number_that_is_counted_up(tmp_path: Path, zygote: Zygote | None, read: str, added: str) -> None:
    """Its sum over the ranks would count that of the evaluation once for each of them."""
    text = SCRIPT.replace("seen = seen + size", added).replace(READ, read)
    assert conftest.differences(tmp_path, zygote, text) is None
