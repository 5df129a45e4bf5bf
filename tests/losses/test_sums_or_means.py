"""Losses that are a sum over samples in one case and a mean in another, which an option of the script decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import argparse
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--summed", action="store_true")
parser.add_argument("--preset")
parser.add_argument("--reduction", default="mean")
args = parser.parse_args()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{criterion}
for x, y in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
OF_BOTH = "criterion = nn.MSELoss(reduction='sum') if {test} else nn.MSELoss()"
TOLD = "this loss is a sum over samples in one case and a mean in another"


@pytest.mark.parametrize(
    ("criterion", "loss"),
    [
        (OF_BOTH.format(test="args.summed"), "criterion(model(x), y)"),
        (OF_BOTH.format(test="'--summed' in sys.argv"), "criterion(model(x), y)"),
        (OF_BOTH.format(test="os.environ.get('SUMMED')"), "criterion(model(x), y)"),
        (
            "if args.preset is not None:\n    args.summed = True\n" + OF_BOTH.format(test="args.summed"),
            "criterion(model(x), y)",
        ),
        ("", "F.mse_loss(model(x), y, reduction='sum') if args.summed else F.mse_loss(model(x), y)"),
        (
            "def criterion(a, b):\n    return ((a - b) ** 2).sum() if args.summed else ((a - b) ** 2).mean()",
            "criterion(model(x), y)",
        ),
    ],
)
def test_are_told_of(tmp_path: Path, criterion: str, loss: str) -> None:
    text, said = converted(tmp_path, SCRIPT.format(criterion=criterion, loss=loss))
    assert TOLD in said or "cannot tell" in said, said
    assert ") * dist.get_world_size()" not in text, "the loss of the usual case is a mean"


@pytest.mark.parametrize(
    ("criterion", "loss"),
    [
        ("chosen = 'sum' if args.summed else 'mean'", "F.mse_loss(model(x), y, reduction=chosen)"),
        ("criterion = nn.MSELoss(reduction=args.reduction)", "criterion(model(x), y)"),
        ("criterion = nn.SmoothL1Loss(reduction='sum' if args.summed else 'mean')", "criterion(model(x), y)"),
        ("criterion = nn.MSELoss()\nif args.summed:\n    criterion.reduction = 'sum'", "criterion(model(x), y)"),
        (
            "kinds = {}\nif args.summed:\n    kinds['of'] = 'sum'",
            "F.mse_loss(model(x), y, reduction=kinds.get('of', 'mean'))",
        ),
        (
            "class Kinds:\n    of = 'mean'\n\n\nif args.summed:\n    Kinds.of = 'sum'",
            "F.mse_loss(model(x), y, reduction=Kinds.of)",
        ),
        (
            "class Kinds:\n    of = 'mean'\n\n\nkinds = Kinds()\nif args.summed:\n    kinds.of = 'sum'",
            "F.mse_loss(model(x), y, reduction=kinds.of)",
        ),
    ],
)
def test_are_computed_of_the_rows_of_all_ranks(tmp_path: Path, zygote: Zygote, criterion: str, loss: str) -> None:
    script = SCRIPT.format(criterion=criterion, loss=loss)
    text, _ = converted(tmp_path, script)
    assert "RowsOfAllRanks" in text and differences(tmp_path, zygote, script) is None


@pytest.mark.parametrize(
    ("criterion", "loss"),
    [
        (OF_BOTH.format(test="False"), "criterion(model(x), y)"),
        ("criterion = nn.MSELoss(reduction='mean') if args.summed else nn.L1Loss()", "criterion(model(x), y)"),
        ("if args.summed:\n    args.preset = 'a'\nelse:\n    args.preset = 'b'", "F.mse_loss(model(x), y)"),
    ],
)
def test_means_in_each_case_are_left(tmp_path: Path, criterion: str, loss: str) -> None:
    _, said = converted(tmp_path, SCRIPT.format(criterion=criterion, loss=loss))
    assert "AD602" not in said and "AD603" not in said, said
