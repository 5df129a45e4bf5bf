"""Data sets of several loaders that one statement makes: each loader reads its own."""

from __future__ import annotations

import re
from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def split(kind):
    return TensorDataset(torch.randn(32, 4), torch.full((32, 1), kind))


def both(first, second):
    return first, second


{made}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for a, b in zip({read}):
        loss = nn.functional.mse_loss(model(a[0]), a[1]) + nn.functional.mse_loss(model(b[0]), b[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ONE, TWO = (f"DataLoader(split({kind}), batch_size=8, shuffle=True)" for kind in ("1.0", "2.0"))
MADE = {
    "a dict": (f'loaders = {{"sign": {ONE}, "value": {TWO}}}', 'loaders["sign"], loaders["value"]'),
    "dict()": (f"loaders = dict(sign={ONE}, value={TWO})", 'loaders["sign"], loaders["value"]'),
    "a list": (f"loaders = [{ONE}, {TWO}]", "loaders[0], loaders[1]"),
    "a tuple": (f"first, second = {ONE}, {TWO}", "first, second"),
    "arguments": (f"first, second = both({ONE}, {TWO})", "first, second"),
    "two statements": (f"first = {ONE}\nsecond = {TWO}", "first, second"),
    "keys that are no names": (f"loaders = {{1: {ONE}, 2: {TWO}}}", "loaders[1], loaders[2]"),
}


@pytest.mark.parametrize("kind", MADE)
def test_each_loader_reads_its_own(tmp_path: Path, kind: str) -> None:
    made, read = MADE[kind]
    code, _ = conftest.converted(tmp_path, SCRIPT.format(made=made, read=read))
    names = dict(re.findall(r"(\w+) = split\((\S+)\)", code))
    assert len(names) == 2 and sorted(names.values()) == ["1.0", "2.0"], code
    for name, number in names.items():
        assert f"DistributedSampler({name}, " in code, number


def test_they_are_called_as_their_loaders(tmp_path: Path) -> None:
    code, _ = conftest.converted(tmp_path, SCRIPT.format(made=MADE["a dict"][0], read=MADE["a dict"][1]))
    assert "sign_set = split(1.0)" in code and "value_set = split(2.0)" in code
