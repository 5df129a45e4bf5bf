"""Tensors out of the pairs that `max`, `topk` and `sort` give, which a loop goes through one sample after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_set = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    hard = 0
    for x, y in loader:
        GUESSED
        wrong = []
        for i in range(len(guess)):
            if guess[i] != y[i]:
                wrong.append(i)
        if len(wrong) == 0:
            continue
        hard += len(wrong)
        loss = nn.functional.cross_entropy(model(x[wrong]), y[wrong])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, hard / len(train_set))
"""


@pytest.mark.parametrize(
    "guessed",
    [
        "guess = model(x).max(1, keepdim=True)[1]",
        "_, guess = model(x).max(1)",
        "_, guess = torch.max(model(x), dim=1)",
        "guess = model(x).topk(1).indices",
        "guess = model(x).argmax(1)",
    ],
)
def test_each_rank_goes_through_its_own_samples(tmp_path: Path, guessed: str) -> None:
    """The samples that an attack still has to change, Friendly Adversarial Training: numbers of a rank's samples picked
    among those of all ranks, in silence, and one rank went on where another did not."""
    text, _ = converted(tmp_path, SCRIPT.replace("GUESSED", guessed))
    assert "gather_rows" not in text
    assert "if reduce_sum(len(wrong)) == 0:" in text
    assert "print(epoch, reduce_sum(hard) / len(train_set))" in text
