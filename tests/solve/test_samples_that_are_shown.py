"""Samples that a script shows before or while it trains: rank 0 has the first one, and sizes are alike."""

from __future__ import annotations

import pytest
from made_global import STEP, found, told
from programs import CATALOG, traced

from autodist.solve.alone import Alone
from autodist.solve.cuts import solved
from autodist.solve.sources import sources


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        ("print(x[0])", []),
        ("print(x[0, :2].tolist(), out[0].argmax().item())", []),
        ("print(x[0].shape, len(x[1]), x[1].size(0))", []),
        ("print(x[1])", ["rows x"]),
        ("print(x[0] + x[1])", ["rows x"]),
        ("print((x - x.mean(0))[0])", ["mean x.mean(0)"]),
        ("print(x.flip(0)[0])", ["rows x"]),
        ("if x[0, 0] > 1:\n" + STEP + "    break", ["rows x"]),
    ],
)
def test_the_first_sample_is_that_of_rank_zero(shown: str, wanted: list[str]) -> None:
    assert [told(cut) for cut in found(STEP + shown)[1]] == wanted


BY_HAND = """\
import torch
from torch import nn

data = torch.randn(100, 4)
def get_batch():
    numbers = torch.randint(100, (8,))
    return data[numbers]
x = get_batch()
print(x, x[3], x.shape)
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    x = get_batch()
    loss = (net(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    {shown}
"""


@pytest.mark.parametrize(
    ("shown", "wanted"), [("pass", []), ("print(x[3])", ["rows x"]), ("print(loss)", ["mean loss"])]
)
def test_a_batch_looked_at_ahead_of_training_is_whole(shown: str, wanted: list[str]) -> None:
    """The same function makes the batches of steps, of which each rank takes its share."""
    program = traced(BY_HAND.format(shown=shown))
    chosen = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    assert [told(cut) for cut in chosen] == wanted


WHOLE = """\
import torch
from torch import nn

data = torch.randn(100, 4)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x)
def error(net):
    return (net(data) - data) ** 2
def mse(out, x):
    return ((out - x) ** 2).mean()
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
    {shown}
"""


@pytest.mark.parametrize(
    ("loss", "shown", "wanted"),
    [
        ("mse(net(data), data)", "print(mse(net(data), data))", []),
        ("(net(data) - data).pow(2).mean()", "print((net(data) - data).abs().max())", []),
        ("mse(net(data), data)", "print(loss, net(data).std())", ["mean loss"]),
        (
            "error(net).mean()",
            "print(error(net).mean(), error(net).max())",
            ["mean error(net).mean()", "max error(net).max()"],
        ),
        ("mse(net(data), data)", "with torch.no_grad():\n        print(mse(net(data), data))", []),
        ("error(net).mean()", "with torch.no_grad():\n        print(error(net).mean())", ["mean error(net).mean()"]),
    ],
)
def test_data_that_steps_take_whole_are_whole_in_other_calls(loss: str, shown: str, wanted: list[str]) -> None:
    """A rank takes its share where a function is given the data, or in the function if it reads them there."""
    program = traced(WHOLE.format(loss=loss, shown=shown))
    chosen = solved(program, sources(program, CATALOG).plan, CATALOG, Alone())
    assert [told(cut) for cut in chosen] == wanted
