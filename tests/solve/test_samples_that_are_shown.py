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
