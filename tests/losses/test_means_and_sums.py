"""Losses that are sums and means over batches however these are made: the conversion trains as the script does."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
x_all, y_all = torch.randn(48, 6), torch.randint(0, 3, (48,))
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{steps}
"""
LOADER = "loader = DataLoader(TensorDataset(x_all, y_all), batch_size=16, shuffle=True)\n"
STEP = """\
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
WHOLE = "loss = F.cross_entropy(net(x_all), y_all, reduction='sum')"


@pytest.mark.parametrize(
    ("steps", "multiplied"),
    [
        (f"for step in range(3):\n    {WHOLE} / len(x_all)\n{STEP}", True),  # of all samples, which each rank knows
        (f"for step in range(3):\n    {WHOLE}\n    loss /= len(y_all)\n{STEP}", True),
        (f"for step in range(3):\n    loss = F.cross_entropy(net(x_all), y_all)\n{STEP}", False),
        (  # a function takes a rank's rows of them, and takes the mean over these
            "def objective(x, y):\n    return F.cross_entropy(net(x), y, reduction='sum') / len(x)\n\n\n"
            f"for step in range(3):\n    loss = objective(x_all, y_all)\n{STEP}",
            False,
        ),
        (
            "for rows in np.array_split(np.random.permutation(48), 6):\n"
            f"    loss = F.cross_entropy(net(x_all[rows]), y_all[rows])\n{STEP}",
            False,
        ),
        (
            "for rows in torch.randperm(48).split(8):\n"
            f"    loss = F.cross_entropy(net(x_all[rows]), y_all[rows], reduction='sum')\n{STEP}",
            True,
        ),
        (
            f"{LOADER}for x, y in loader:\n    optimizer.zero_grad()\n    for i in range(0, len(x), 4):\n"
            "        (F.cross_entropy(net(x[i : i + 4]), y[i : i + 4]) / 4).backward()\n    optimizer.step()\n",
            True,
        ),
        (
            f"{LOADER}for x, y in loader:\n    optimizer.zero_grad()\n    for row, label in zip(x, y):\n"
            "        (F.cross_entropy(net(row), label) / 16).backward()\n    optimizer.step()\n",
            True,
        ),
    ],
)
def test_trains_alike(tmp_path: Path, zygote: Zygote, steps: str, multiplied: bool) -> None:
    text = SCRIPT.format(steps=steps)
    assert ("AD603" in converted(tmp_path, text)[1]) is multiplied
    if "zip(x, y)" not in steps:  # a rank has other numbers of backward passes than one process, which verify counts
        assert differences(tmp_path, zygote, text) is None


ONE_BY_ONE = "for x, y in loader:\n    out, loss = net(x), 0\n    for row, label in zip(out, y):\n"
TERM = "F.cross_entropy(row[None], label[None])"


@pytest.mark.parametrize(
    "rest",
    [
        f"        loss = loss + {TERM}\n    loss = loss / len(x)\n",
        f"        loss += {TERM}\n    loss /= x.size(0)\n",
        f"        loss += {TERM}\n    n = len(out)\n    loss = loss / n\n",
        f"        loss += (row - label).pow(2).mean() + {TERM}\n    loss = loss / out.shape[0]\n",
    ],
)
def test_terms_of_one_sample_after_the_other_are_averaged(tmp_path: Path, zygote: Zygote, rest: str) -> None:
    text = SCRIPT.format(steps=LOADER + ONE_BY_ONE + rest + STEP)
    code, said = converted(tmp_path, text)
    assert "AD60" not in said.replace("AD601 loss.item() is a mean over this rank's samples", ""), said
    assert code.count("reduce_mean(loss.item())") == 1
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "rest",
    [
        "        loss += row.max()\n    loss = loss / len(x) ** 0.5\n",
        f"        loss = 0.9 * loss + {TERM}\n    loss = loss / len(x)\n",
        f"        loss = loss * 0.9 + {TERM}\n    loss /= x.size(0)\n",
    ],
)
def test_what_goes_by_more_than_how_many_there_are_is_no_mean(tmp_path: Path, rest: str) -> None:
    said = converted(tmp_path, SCRIPT.format(steps=LOADER + ONE_BY_ONE + rest + STEP))[1]
    assert ("AD606" if "0.9" in rest else "AD60") in said
