"""What rank 0 alone shows: all ranks reduce it where they come to it, and where only rank 0 does, it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

ASKED = """\
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{asked}


def log(text):
    if is_main():
        print(text)


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curve = []
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        {kept}
    {shown}


main()
"""
IS_MAIN = "def is_main():\n    return {}"
DUMPED = 'if is_main():\n        json.dump(curve, open("curve.json", "w"))'
MAIN_BY = ['int(os.environ.get("RANK", 0)) == 0', "not dist.is_initialized() or dist.get_rank() == 0"]


@pytest.mark.parametrize("by", MAIN_BY)
@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ('log(f"{epoch} {loss.item()}")', "pass"),
        ("curve.append(loss.item())", DUMPED),
        ('curve.append(loss.item()); log(f"{epoch} {loss.item():.3f}")', DUMPED),
    ],
)
def test_all_ranks_reduce_what_rank_zero_shows(by: str, kept: str, shown: str, tmp_path: Path) -> None:
    """They give it to a function that asks which rank it is, or put it into a list in the loop that trains."""
    text = ASKED.format(asked=IS_MAIN.format(by), kept=kept, shown=shown)
    after, said = converted(tmp_path, text)
    assert "reduce_mean(loss.item())" in after
    assert "rank 0 reports" not in said and "part ways" not in said


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        ("if is_main():\n            curve.append(loss.item())", DUMPED),
        ('if is_main():\n            log(f"{epoch} {loss.item()}")', "pass"),
        ("if not is_main():\n            continue\n        curve.append(loss.item())", DUMPED),
    ],
)
def test_where_only_rank_zero_comes_it_is_told(kept: str, shown: str, tmp_path: Path) -> None:
    after, said = converted(tmp_path, ASKED.format(asked=IS_MAIN.format(MAIN_BY[0]), kept=kept, shown=shown))
    assert "reduce_mean(" not in after
    assert "loss.item()" in said


def test_training_is_the_same_with_a_function_of_rank_zero(tmp_path: Path, zygote: Zygote | None) -> None:
    kept = 'curve.append(loss.item()); log(f"{epoch} {loss.item():.3f}")'
    assert (
        differences(tmp_path, zygote, ASKED.format(asked=IS_MAIN.format(MAIN_BY[0]), kept=kept, shown=DUMPED)) is None
    )
