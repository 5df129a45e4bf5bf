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
    ("loss", "by_hand"),
    [("10 * penalty", True), ("10 * penalty - out.mean()", False), ("penalty + 0 * out.sum()", False)],
)
def test_a_gradient_penalty_alone(tmp_path: Path, loss: str, by_hand: bool) -> None:
    """The last bias has no gradient then, for which DistributedDataParallel waits: gradients are averaged by hand."""
    code, said = converted(tmp_path, PENALTY.format(loss=loss))
    assert ("average_gradients(optimizer)" in code) == by_hand == ("DDP(" not in code), said
    assert "trains on a gradient penalty alone" not in said


FORCES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forces(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        x.requires_grad_(True)
        energy = self.net(x)
        force = -torch.autograd.grad(energy.sum(), x, create_graph=True)[0]
        return {given}


loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randn(64, 6)), batch_size=8, shuffle=True)
model = Forces()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "loss", "unused"),
    [
        ("force", "(model(x) - y).pow(2).mean()", True),
        ("force + energy", "(model(x) - y).pow(2).mean()", False),
    ],
)
def test_a_model_that_gives_derivatives_alone(tmp_path: Path, given: str, loss: str, unused: bool) -> None:
    """The bias of its last layer has no say in forces."""
    code, said = converted(tmp_path, FORCES.format(given=given, loss=loss))
    assert ("find_unused_parameters=True" in code) == unused, said


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


CENTRED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x - x.mean(0)

    @staticmethod
    def backward(ctx, g):
        return {answer}


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(Centre.apply(model(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("g - g.mean(0)", "return g - reduce_mean(g.mean(0))"),
        ("g - g.sort(0)[0]", "Centre.apply(RowsOfAllRanks.apply(model(x)))"),
        ("g / (g.sum() + 5)", "Centre.apply(RowsOfAllRanks.apply(model(x)))"),
        ("0.5 * g", "return 0.5 * g"),
    ],
)
def test_gradients_of_samples_that_meet_in_a_backward_pass(tmp_path: Path, answer: str, expected: str) -> None:
    """A function's own backward pass is as much of the loss as its forward pass."""
    text, said = converted(tmp_path, CENTRED.format(answer=answer))
    assert expected in text and "AD602" not in said
    assert ("return x - SumOverRanks.apply(x.mean(0))" in text) == ("Rows" not in expected)


def test_gradients_for_several_inputs_of_a_function(tmp_path: Path) -> None:
    """Of rows for the samples, and a sum over them for the weights."""
    text = CENTRED.replace("forward(ctx, x):", "forward(ctx, x, w):")
    text = text.replace("return x - x.mean(0)", "ctx.x = x\n        return x @ w")
    text = text.replace("Centre.apply(model(x))", "Centre.apply(model(x), torch.eye(3))")
    after, said = converted(tmp_path, text.format(answer="g, ctx.x.t() @ g"))
    assert "RowsOfAllRanks" not in after and "SumOverRanks" not in after and "AD602" not in said
    _, said = converted(tmp_path, text.format(answer="g, g.t() @ g"))  # four times as large of twice as large ones
    assert "AD606" in said
