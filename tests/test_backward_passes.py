"""Losses of gradients, and backward passes that run others."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

PENALTY = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for (x,) in loader:
    out = critic(x.requires_grad_(True))
    grad = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]
    penalty = ((grad.norm(2, 1) - 1) ** 2).mean()
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "told"), [("10 * penalty", True), ("10 * penalty - out.mean()", False), ("penalty + 0 * out.sum()", False)]
)
def test_a_gradient_penalty_alone(tmp_path: Path, loss: str, told: bool) -> None:
    """The last bias has no gradient then, for which DistributedDataParallel waits."""
    _, said = converted(tmp_path, PENALTY.format(loss=loss))
    assert ("trains on a gradient penalty alone" in said) == told


REVERSIBLE = """\
import torch
from torch import nn
import kernels
from torch.autograd.function import Function
from torch.utils.data import DataLoader, TensorDataset


class Reversible(Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        ctx.save_for_backward(x)
        return layer(x).detach()

    @staticmethod
    def backward(ctx, gradient):
        {backward}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return Reversible.apply(x, self.body)


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
AGAIN = "with torch.enable_grad():\n            torch.autograd.backward(ctx.layer(*ctx.saved_tensors), gradient)\n"


@pytest.mark.parametrize(
    ("backward", "refused"),
    [
        (AGAIN + "        return gradient, None", True),
        ("return gradient, None", False),
        ("return kernels.backward(gradient), None", False),
    ],
)
def test_a_backward_pass_within_another(tmp_path: Path, backward: str, refused: bool) -> None:
    """As reversible layers have: the wrapper would be told twice of each gradient."""
    _, said = converted(tmp_path, REVERSIBLE.format(backward=backward))
    assert ("runs a backward pass within a backward pass" in said) == refused
