"""Samples that a step picks by chance of a rank's own, batches that are kept, and loaders given whole batches."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import random
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
{loader}
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    {begin}
    for x, y in loader:
        {pick}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
SHUFFLED = "loader = DataLoader(data, batch_size=16, shuffle=True)"
TAKEN = "\n        x, y = x[picked], y[picked]"
REMEMBERED = "older = random.sample(memory, 8)\n        a, b = map(torch.stack, zip(*older))\n        "


def script(loader: str = SHUFFLED, begin: str = "pass", pick: str = "pass") -> str:
    return SCRIPT.format(loader=loader, begin=begin, pick=pick)


@pytest.mark.parametrize(
    ("pick", "warned"),
    [
        ("picked = torch.randperm(len(x))[:8]" + TAKEN, True),
        ("picked = torch.randint(len(x), (8,))" + TAKEN, True),
        ("picked = np.random.choice(len(x), 8, replace=False)" + TAKEN, True),
        ("picked = random.sample(range(len(x)), 8)" + TAKEN, True),
        ("memory.extend(zip(x, y))\n        " + REMEMBERED + "x, y = torch.cat([x, a]), torch.cat([y, b])", True),
        ("picked = torch.randperm(len(x))" + TAKEN, False),
        ("picked = torch.randint(len(x), (len(x),))" + TAKEN, False),
        ("picked = random.sample(range(len(x)), len(x) // 2)" + TAKEN, False),
        ("picked = torch.randperm(len(x))[:8]\n        print(x[picked].shape)", False),
    ],
)
def test_so_many_of_a_ranks_samples(tmp_path: Path, pick: str, warned: bool) -> None:
    """Each rank took as many as one process, without a word."""
    text = script(f"memory = deque(maxlen=64)\n{SHUFFLED}", pick=pick)
    _, said = conftest.converted(tmp_path, text)
    assert ("rank's own samples" in said) is warned


@pytest.mark.parametrize(
    ("loader", "begin"),
    [
        ("loader = list(DataLoader(data, batch_size=16, shuffle=True))", "random.shuffle(loader)"),
        ("loader = list(DataLoader(data, batch_size=16, shuffle=True))", "np.random.shuffle(loader)"),
        ("loader = DataLoader(data, None, sampler=BatchSampler(RandomSampler(data), 16, drop_last=False))", "pass"),
    ],
)
def test_batches_that_are_kept_or_drawn_whole(tmp_path: Path, zygote: Zygote, loader: str, begin: str) -> None:
    """The order of batches was each rank's own; `batch_size=None` was divided."""
    before = script(loader, begin)
    if "np.random.shuffle" in begin:
        before = before.replace(begin, "order = np.random.permutation(len(loader))").replace(
            "for x, y in loader:", "for x, y in [loader[i] for i in order]:"
        )
    code, said = conftest.converted(tmp_path, before)
    assert "random.seed(torch.initial_seed())" not in code and "AD9" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


def test_samples_one_by_one_are_refused(tmp_path: Path) -> None:
    text = script("loader = DataLoader(data, batch_size=None, sampler=RandomSampler(data))")
    assert "batches of one sample cannot be shared out" in conftest.converted(tmp_path, text)[1]
