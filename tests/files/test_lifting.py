"""One rank check around a loop or a condition, where all of it is for rank 0."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = {"weight": model.weight.detach().numpy(), "bias": model.bias.detach().numpy()}
"""


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "loop",
    [
        "for name, value in weights.items():\n    np.save(name, value)\n",
        "for i, value in enumerate(weights):\n    path = os.path.join('o', str(i))\n    np.save(path, value)\n",
        "for name in weights:\n    if name != 'bias':\n        np.save(name, weights[name])\n    print(name)\n",
        "if len(weights) > 1:\n    np.save('all', weights['weight'])\nelse:\n    np.save('one', weights['weight'])\n",
    ],
)
def test_all_that_happens_is_writing(tmp_path: Path, loop: str) -> None:
    """The loop is guarded, not each file."""
    after, _ = conftest.converted(tmp_path, SCRIPT + loop)
    assert after.endswith(f"if dist.get_rank() == 0:\n{indented(loop)}"), after


@pytest.mark.parametrize(
    ("loop", "guarded"),
    [
        ("for name, value in weights.items():\n    np.save(name, value)\nprint(name)\n", "    np.save(name, value)\n"),
        (
            "for name, value in weights.items():\n    weights[name] = value * 2\n    np.save(name, value)\n",
            "    np.save(name, value)\n",
        ),
        (
            "for name, value in weights.items():\n    noise = torch.randn(3)\n    torch.save(noise, name)\n",
            "    torch.save(noise, name)\n",
        ),
        ("for i, (x, y) in enumerate(loader):\n    torch.save(x, f'{i}.pt')\n", "    torch.save(all_x, f'{i}.pt')\n"),
        (
            "rows = iter([1, 2, 3])\nfor row in rows:\n    torch.save(row, f'{row}.pt')\nprint(next(rows, 0))\n",
            "    torch.save(row, f'{row}.pt')\n",
        ),
        (
            "for name in ('a', 'b'):\n    model.train()\n    torch.save(model.state_dict(), name)\n",
            "    torch.save(model.module.state_dict(), name)\n",
        ),
        (
            "for i in range(2):\n    torch.save([i, loss.item()], f'{i}.pt')\n",
            "    torch.save([i, mean_loss], f'{i}.pt')\n",
        ),
    ],
)
def test_what_all_ranks_take_part_in(tmp_path: Path, loop: str, guarded: str) -> None:
    """Only the file is for rank 0 alone: names are read later on, noise is drawn, losses are made global."""
    after, _ = conftest.converted(tmp_path, SCRIPT + loop)
    assert f"    if dist.get_rank() == 0:\n    {guarded}" in after, after


def test_a_barrier_once(tmp_path: Path) -> None:
    """Files that a loop makes before training are waited for once."""
    made = """
def prepare(path):
    np.save(path, np.zeros(3))


for name in ("a", "b"):
    prepare(name + ".npy")
"""
    head, tail = SCRIPT.split("loader =")
    after, _ = conftest.converted(tmp_path, f"{head}{made}a = np.load('a.npy')\nloader ={tail}")
    once = 'if rank == dist.get_rank() and os.environ["LOCAL_RANK"] == "0":'
    loop = '        for name in ("a", "b"):\n            prepare(name + ".npy")\n'
    assert f"    {once}\n{loop}    dist.barrier()\n" in after and after.count("dist.barrier()") == 1
    assert after.index("\nsetup_distributed()\n") < after.index(once)
