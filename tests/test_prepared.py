"""What scripts put on disk before they train: rank 0 does it, first or alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import os
import pickle
import shutil
import urllib.request

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(path):
{prepare}


{call}
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALONE = "if dist.get_rank() == 0:\n    prepare('data')\ndist.barrier()\n"
FIRST = "if dist.get_rank() != 0:\n    dist.barrier()  # rank 0 downloads first\nprepare('data')\n"
ANEW = """\
    if os.path.exists(path):
        message = "archived"
        shutil.make_archive(path, "zip", path)
        shutil.rmtree(path)
    os.makedirs(path)"""
ONCE = """\
    if not os.path.exists(path):
        urllib.request.urlretrieve("http://localhost/data", path)"""
READ = """\
    if os.path.exists(path):
        return pickle.load(open(path, "rb"))
    words = {word: number for number, word in enumerate(set(open("words.txt").read().split()))}
    with open(path, "wb") as file:
        pickle.dump(words, file)
    return words"""
FOUND = """\
    if os.path.exists(path):
        words = pickle.load(open(path, "rb"))
        names = [each for each in set(words)]
    else:
        words = {word: number for number, word in enumerate(set(open("words.txt").read().split()))}
        with open(path, "wb") as file:
            pickle.dump(words, file)
        names = []
    return words, names"""


@pytest.mark.parametrize(
    ("prepare", "call", "expected"),
    [
        pytest.param(ANEW, "prepare('data')", ALONE, id="made anew"),
        pytest.param(ONCE, "prepare('data')", FIRST, id="spared where it is"),
        pytest.param(READ, "words = prepare('data')", "enumerate(set(open(", id="words that others read"),
        pytest.param(FOUND, "words, _ = prepare('data')", "in sorted(set(words), key=str)]", id="words that are read"),
    ],
)
def test_what_is_put_on_disk(tmp_path: Path, prepare: str, call: str, expected: str) -> None:
    assert expected in converted(tmp_path, SCRIPT.format(prepare=prepare, call=call))[0]
