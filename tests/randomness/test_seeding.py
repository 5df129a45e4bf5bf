"""Ranks draw alike in every run, also in one that is not told which seed to take."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
args = parser.parse_args()


SET
x = torch.arange(256.0).view(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        lam = np.random.beta(1.0, 1.0)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(lam * x), y).backward()
        optimizer.step()
"""
ADDED = """\
torch.manual_seed(as_on_rank_zero(torch.initial_seed()))  # same random numbers on all ranks
np.random.seed(torch.initial_seed() % 2**32)
"""
FUNCTION = """\
def fix(seed):
    if seed is None:
        return
    torch.manual_seed(seed)
    np.random.seed(seed)


"""


@pytest.mark.parametrize(
    "seeds",
    [
        "if args.seed is not None:\n    torch.manual_seed(args.seed)\n    np.random.seed(args.seed)\n",
        "if args.seed:\n    torch.manual_seed(args.seed)\n    np.random.seed(args.seed)\n",
        f"{FUNCTION}fix(args.seed)\n",
        f"{FUNCTION}fix(seed=args.seed)\n",
    ],
)
def test_ranks_draw_alike_where_no_seed_is_given(seeds: str, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT.replace("SET\n", seeds))
    assert ADDED in text
    assert text.index(ADDED) < text.index(seeds.splitlines()[-1])


@pytest.mark.parametrize(
    ("default", "seeds"),
    [
        ("1", "if args.seed is not None:\n    torch.manual_seed(args.seed)\n    np.random.seed(args.seed)\n"),
        ("1", f"{FUNCTION}fix(args.seed)\n"),
        ("None", f"{FUNCTION}fix(3)\n"),
        (
            "None",
            "if args.seed is not None:\n    torch.manual_seed(args.seed)\n    np.random.seed(args.seed)\n"
            "else:\n    torch.manual_seed(1)\n    np.random.seed(1)\n",
        ),
    ],
)
def test_a_seed_that_is_always_set_is_enough(default: str, seeds: str, tmp_path: Path) -> None:
    script = SCRIPT.replace("default=None", f"default={default}").replace("SET\n", seeds)
    assert "draw alike" not in converted(tmp_path, script)[0]


def test_a_condition_that_training_stands_under_too_is_none(tmp_path: Path) -> None:
    head, body = SCRIPT.split("SET\n")
    inside = "".join(f"    {line}\n" for line in f"torch.manual_seed(1)\nnp.random.seed(1)\n{body}".splitlines())
    assert "draw alike" not in converted(tmp_path, f"{head}if args.seed is None:\n{inside}")[0]


CLOCK = """\
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def init_seed(seed=None):
    if seed is None:
        seed = int(time.time() * 1000 // 1000)
    np.random.seed(seed)
    torch.manual_seed(seed)


parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=None)
args = parser.parse_args()
SET
x = torch.from_numpy(np.random.randn(64, 4)).float()
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


def test_a_seed_that_is_given_stays(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, CLOCK.replace("SET", "init_seed(2020)"))
    assert "seed = int(time.time() * 1000 // 1000)" in text
    assert "    np.random.seed(seed)\n    torch.manual_seed(seed)\n" in text


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("init_seed(args.seed)", "init_seed(args.seed)"),
        ("init_seed(args.seed or int(time.time()))", "init_seed(args.seed or as_on_rank_zero(int(time.time())))"),
        (
            "init_seed(args.seed if args.seed is not None else int(time.time()))",
            "init_seed(args.seed if args.seed is not None else as_on_rank_zero(int(time.time())))",
        ),
        (
            "if not args.seed:\n    args.seed = int(time.time())\ninit_seed(args.seed)",
            "if not args.seed:\n    args.seed = as_on_rank_zero(int(time.time()))\ninit_seed(args.seed)",
        ),
    ],
)
def test_the_clock_stands_in_only_where_no_seed_is_given(seeds: str, expected: str, tmp_path: Path) -> None:
    """A seed that a user gives counts: what is replaced is the clock, not the call."""
    text, _ = converted(tmp_path, CLOCK.replace("SET", seeds))
    assert f"{expected}\n" in text
    agreed = "    if seed is None:\n        seed = as_on_rank_zero(int(time.time() * 1000 // 1000))\n"
    assert f"{agreed}    np.random.seed(seed)\n    torch.manual_seed(seed)\n" in text
