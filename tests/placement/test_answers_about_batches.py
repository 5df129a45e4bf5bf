"""What a script asks of all samples of a batch, and goes by: whether something is among them, or some are alike."""

from __future__ import annotations

import textwrap
from pathlib import Path

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 6)
y = torch.randint(0, 3, (64,))
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
count = 0
found = []
for epoch in range(2):
    for a, b in loader:
        out = model(a)
        each = nn.functional.cross_entropy(out, b, reduction="none")
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = out.argmax(1)
{body}
    print(epoch, count, found, loss.item())
"""
ASKED = {
    "in a tensor": "if 2 in b:\n    count += 1",
    "in a list": "if 2 not in guess.tolist():\n    count += 1",
    "in a comprehension": "found = [k for k in range(3) if k in b]",
    "any": "if any(v > 1.5 for v in each.tolist()):\n    count += 1",
    "all": "if all(v > 0.4 for v in each.tolist()):\n    count += 1",
    "equal lists": "if guess.tolist() != b.tolist():\n    count += 1",
    "equal tensors": "if not torch.equal(guess, b):\n    count += 1",
    "close": "if torch.allclose(each, each.mean(), atol=0.9):\n    count += 1",
    "close arrays": "if np.allclose(each.detach().numpy(), 1.0, atol=0.9):\n    count += 1",
    "sums of those there are": "found = {k: (guess[b == k] == k).sum().item() for k in range(3) if k in b}",
    "means of those there are": "found = [each[b == k].mean().item() for k in range(3) if (b == k).any()]",
    "a rank of a matrix": "if np.linalg.matrix_rank(a.numpy()) == 6:\n    count += 1",
}
LOSSES = [
    "torch.stack([each[b == k].mean() for k in range(3) if (b == k).any()]).mean()",
    "sum(each[b == k].mean() for k in range(3) if k in b) / 3",
]


def _script(loss: str, body: str) -> str:
    return SCRIPT.format(loss=loss, body=textwrap.indent(body, " " * 8))


@pytest.mark.parametrize("case", ASKED)
def test_all_ranks_answer_for_the_whole_batch(tmp_path: Path, zygote: Zygote, case: str) -> None:
    assert conftest.differences(tmp_path, zygote, _script("each.mean()", ASKED[case])) is None


@pytest.mark.parametrize("loss", LOSSES)
def test_terms_that_a_batch_may_not_have(tmp_path: Path, zygote: Zygote, loss: str) -> None:
    """Ranks that do not come to a term of their own would wait for each other."""
    assert conftest.differences(tmp_path, zygote, _script(loss, "pass")) is None
