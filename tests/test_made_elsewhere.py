"""Batches of a function that is also asked for other data, and densities of what a model makes of its batch."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
from torch import nn

{make}


torch.manual_seed(0)
np.random.seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    x, y = sample(64)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{after}
"""
MAKE = """
def sample(n):
    x = torch.{draw}
    return x, (x.sum(1, keepdim=True) > 1).float()
"""
LATER = """
x, y = sample(1000)
np.save("x.npy", x)
with torch.no_grad():
    print("accuracy", ((model(x) > 0) == y).float().mean())
"""


@pytest.mark.parametrize("draw", ["rand(n, 2)", "randn((n, 2))"])
def test_the_step_takes_its_share(tmp_path: Path, draw: str) -> None:
    text = SCRIPT.format(make=MAKE.format(draw=draw), after=LATER)
    after, said = conftest.converted(tmp_path, text)
    assert "x, y = local_rows(sample(64))" in after, said
    assert "x, y = sample(1000)" in after and f"x = torch.{draw}\n" in after
    assert "AD601" not in said.replace("AD601 loss", "")


def test_a_function_that_only_makes_batches(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.format(make=MAKE.format(draw="rand(n, 2)"), after=""))
    assert "x = torch.rand(n, 2)[dist.get_rank() :: dist.get_world_size()]" in after


FLOW = """\
import torch
from torch import nn
from torch.distributions import MultivariateNormal


class Flow(nn.Module):
    def __init__(self, prior):
        super().__init__()
        self.prior, self.net = prior, nn.Linear(4, 4)

    def forward(self, x):
        z = torch.tanh(self.net(x))
        return z, self.prior.log_prob({asked})


x = torch.randn(64, 4)
flow = Flow(MultivariateNormal(torch.zeros(4), torch.eye(4)))
optimizer = torch.optim.Adam(flow.parameters())
for step in range(10):
    optimizer.zero_grad()
    z, logprob = flow(x)
    loss = -torch.mean(logprob)
    loss.backward()
    optimizer.step()
"""


def test_densities_are_of_the_rows(tmp_path: Path) -> None:
    after, said = conftest.converted(tmp_path, FLOW.format(asked="z"))
    assert "z, logprob = flow(x[rows])" in after, said
    _, said = conftest.converted(tmp_path, FLOW.format(asked="z - z[0]"))
    assert "AD9" in said, said
