"""Where ranks begin to draw noise of their own, and where they must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)


def train(model, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = nn.Linear(4, 1)
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
{again}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{seed}
for x, y in loader:
    loss = nn.functional.mse_loss(model(x + torch.randn(x.shape)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("again", "seed"), [("", ""), ("torch.manual_seed(1)", ""), ("", "torch.manual_seed(1)")])
def test_a_second_training_that_draws_noise(tmp_path: Path, again: str, seed: str) -> None:
    """The first one needs none, and the model of the second must begin alike on all ranks."""
    code, _ = converted(tmp_path, SCRIPT.format(again=again, seed=seed))
    assert code.count("torch.initial_seed() + dist.get_rank()") == 1
    assert code.index("optimizer = torch") < code.index("torch.initial_seed()") < code.index("x + torch.randn")


def test_a_data_set_that_draws_for_itself(tmp_path: Path) -> None:
    """Numbers of NumPy are the same on all ranks, though the script seeds nothing."""
    text = SCRIPT.format(again="", seed="").replace("torch.manual_seed(1)\n", "import numpy as np\n")
    code, _ = converted(tmp_path, text.replace("loader = ", "first = np.random.randint(32)\nloader = "))
    assert "np.random.seed(0)" in code


FOLDS = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for fold in range(2):
    for parameter in model.parameters():
        nn.init.uniform_(parameter)
    train(model, optimizer)
"""


def test_parameters_that_are_drawn_anew(tmp_path: Path) -> None:
    """They must be the same on all ranks, whatever noise there is."""
    text = SCRIPT.format(again="", seed="").replace("model(x), y", "model(x + torch.randn(x.shape)), y")
    head, tail = text[: text.index("train(model, torch")], FOLDS
    assert "torch.initial_seed()" not in converted(tmp_path, head + tail)[0]
    assert "torch.initial_seed()" in converted(tmp_path, head + tail.replace("nn.init.uniform_", "print"))[0]
