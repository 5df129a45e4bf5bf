"""Sums over samples that a loss adds to means, or to a penalty of the weights."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.spread, self.decode = nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(2, 8)

    def forward(self, x):
        mu, logvar = self.mean(x), self.spread(x)
        return self.decode(mu), mu, logvar


def objective(out, x, mu, logvar):
    mse = F.mse_loss(out, x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / 16
    penalty = sum((p**2).sum() for p in model.parameters())
{loss}


loader = DataLoader(TensorDataset(torch.rand(64, 8)), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.rand(20, 8)), batch_size=16)
model = VAE()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = objective(*model(x)[:1], x, *model(x)[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
EVALUATED = "print(objective(*model(x)[:1], x, *model(x)[1:]).item())\n"
TIMES = " * dist.get_world_size()"


def converted(folder: Path, loss: str, more: str = "", warned: bool = False) -> str:
    text, said = conftest.converted(folder, SCRIPT.replace("{loss}", indent(loss, "    ")) + more)
    assert ("AD602" in said) == warned and "AD9" not in said
    return text


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("return mse + kld", f"return mse + kld{TIMES}"),
        ("return kld + mse", f"return kld{TIMES} + mse"),
        ("return mse - 0.5 * mu.sum()", f"return mse - 0.5 * mu.sum(){TIMES}"),
        ("return mse + 0.1 * kld + 0.01 * penalty", f"return mse + 0.1 * kld{TIMES} + 0.01 * penalty"),
        ("return 0.01 * penalty + kld", f"return 0.01 * penalty + kld{TIMES}"),
        ("total = mse\ntotal += kld\nreturn total", f"total += kld{TIMES}"),
        ("return mse + kld + mu.abs().sum()", f"return mse + kld{TIMES} + mu.abs().sum(){TIMES}"),
    ],
)
def test_sums_beside_means(tmp_path: Path, loss: str, expected: str) -> None:
    text = converted(tmp_path, loss)
    assert expected in text and "print(reduce_mean(loss.item()))" in text


@pytest.mark.parametrize(
    "loss", ["return kld", "return mse", "return mse + 0.01 * penalty", "return mse + mu.pow(2).mean()"]
)
def test_losses_of_one_kind(tmp_path: Path, loss: str) -> None:
    """A mean is left alone, and so is what every rank has; a sum is multiplied where gradients are taken of it."""
    text = converted(tmp_path, loss)
    assert loss in text and ("loss * dist.get_world_size()" in text) == (loss == "return kld")


def test_evaluated_on_whole_data(tmp_path: Path) -> None:
    """Every rank has all of them."""
    more = f"with torch.no_grad():\n    for (x,) in test_loader:\n        {EVALUATED}"
    text = converted(tmp_path, "return mse + kld", more)
    assert "return mse + kld * (dist.get_world_size() if torch.is_grad_enabled() else 1)" in text


def test_evaluated_with_gradients_on(tmp_path: Path) -> None:
    """Nothing tells training from evaluation there."""
    more = f"for (x,) in test_loader:\n    {EVALUATED}"
    assert "return mse + kld\n" in converted(tmp_path, "return mse + kld", more, warned=True)
