"""Scripts that were refused, or converted with more or less than an expert would write."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
rows = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
loader = DataLoader(rows, batch_size=8, shuffle=True)
"""
STEPS = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("args.gpu, non_blocking=True", "non_blocking=True"),
        ("args.gpu, True", "non_blocking=True"),
        ("args.gpu, **options", "**options"),
        ("args.gpu", ""),
    ],
)
def test_only_the_device_goes_from_where_a_tensor_is_moved(tmp_path: Path, told: str, left: str) -> None:
    make = "options = {}\nmodel = nn.Linear(4, 2).cuda(args.gpu)\n"
    moved = STEPS.replace("model(x), y", f"model(x.cuda({told})), y.cuda({told})")
    code, _ = converted(tmp_path, HEAD + make + moved)
    assert f"x.cuda({left})), y.cuda({left})" in code and "nn.Linear(4, 2).cuda()" in code
