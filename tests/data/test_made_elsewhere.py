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


CUT = """\
import torch
from torch import nn

data = torch.randint(0, 20, (1000,))


def get_batch({default}):
    starts = torch.randint(len(data) - 9, (n,))
    x = torch.stack([data[i : i + 8] for i in starts])
    return x, torch.stack([data[i + 1 : i + 9] for i in starts])


model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    if step % 10 == 0:
        with torch.no_grad():
            x, y = {asked}
            print(nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    x, y = get_batch(16)
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "asked"), [("n=1", "get_batch()"), ("n", "get_batch(1)"), ("n=2", "get_batch(n=3)")]
)
def test_a_number_of_samples_that_ranks_cannot_share(tmp_path: Path, default: str, asked: str) -> None:
    """The function is asked for it where a model is evaluated: the step takes its share of what it is given."""
    after, said = conftest.converted(tmp_path, CUT.format(default=default, asked=asked))
    assert "x, y = local_rows(get_batch(16))" in after and f"x, y = {asked}" in after, said
    assert "reduce_mean" not in after


def test_numbers_of_samples_that_ranks_can_share(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, CUT.format(default="n", asked="get_batch(32)"))
    assert "(n,))[dist.get_rank() :: dist.get_world_size()]" in after and "reduce_mean" in after
