"""Numbers of a rank that lists and arrays keep until somebody looks at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = {before}
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
    history[-1] /= len(loader)
{after}
"""
SLOT = "history[epoch] += loss.item()"


@pytest.mark.parametrize(
    ("before", "step", "after", "expected"),
    [
        ("[]", "history.append([epoch, loss.item()])", "print(history)", "history.append([epoch, reduce_mean("),
        ("[]", "history.append({'loss': loss.item()})", "print(history)", "history.append({'loss': reduce_mean("),
        ("[]", "history.append((x, y))", "print(len(history))", "history.append((x, y))"),
        ("[0.0] * 2", SLOT, "print(history)", "print(reduce_mean(history))"),
        ("np.zeros(2)", SLOT, "print(history)", "print(reduce_mean(history))"),
        ("[0.0] * 2", SLOT, "plt.plot(history)", "plt.plot(reduce_mean(history))"),
        ("[0.0] * 2", SLOT, "_, axis = plt.subplots()\naxis.plot(history)", "axis.plot(reduce_mean(history))"),
    ],
)
def test_what_is_kept_is_reduced(tmp_path: Path, before: str, step: str, after: str, expected: str) -> None:
    """A list of numbers, or an array of NumPy, needs a function that takes one."""
    code, _ = converted(tmp_path, SCRIPT.format(before=before, step=step, after=after))
    assert expected in code
    assert ("array or list" in code) == ("reduce_mean(history)" in expected)
