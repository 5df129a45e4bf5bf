"""Many models that one function trains: all of them are wrapped, and their loaders shared out, or the script is
refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


{epoch}def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1):
        total = 0.0
        for x, y in loader:
            total += {step}(model, optimizer, x, y)
        print(total / len(loader))


data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
"""
EPOCH = """\
def update(model, optimizer, x, y):
    return step(model, optimizer, x, y)


"""
TRAINED = """\
model{0} = nn.Linear(4, 1)
loader{0} = DataLoader(data, batch_size=8, shuffle=True)
train(model{0}, loader{0})
"""


def many(number: int, deep: bool = False) -> str:
    script = SCRIPT.format(epoch=EPOCH if deep else "", step="update" if deep else "step")
    return script + "".join(map(TRAINED.format, range(number)))


@pytest.mark.parametrize("deep", [False, True])
def test_all_of_them_are_followed(tmp_path: Path, deep: bool) -> None:
    """Half of the loaders were said to be for evaluation, and half of the models stayed as they were."""
    code, said = converted(tmp_path, many(16, deep))
    assert code.count("= DDP(nn.Linear(4, 1))") == code.count("sampler=DistributedSampler(") == 16, said
    assert "evaluate in different orders" not in said


def test_they_train_as_in_one_process(tmp_path: Path, zygote: Zygote | None) -> None:
    """On two ranks, by running both."""
    assert differences(tmp_path, zygote, many(10, deep=True)) is None


def test_too_many_to_follow(tmp_path: Path) -> None:
    """What is not followed might not be converted."""
    code, said = converted(tmp_path, many(100))
    assert "trains more models than can be followed" in said and "DDP(" not in code
