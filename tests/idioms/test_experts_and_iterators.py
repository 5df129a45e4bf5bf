"""Scripts of the last years: experts with room for so many, samples by one of several makers, iterators of the script,
text that is shown between steps."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

EXPERTS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Experts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])

    def forward(self, x):
        flat = x.view(-1, x.size(-1))
        gates = self.router(flat).softmax(dim=-1)
        capacity = x.shape[0] * x.shape[1] // len(self.experts)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
{picks}
            out.index_add_(0, picked, expert(flat[picked]) * gates[picked, i].unsqueeze(1))
        return out.view(x.shape)


model = nn.Sequential(nn.Embedding(16, 8), Experts(8, 4), nn.Linear(8, 16))
loader = DataLoader(TensorDataset(torch.randint(0, 16, (64, 9))), batch_size=8, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for (rows,) in loader:
    loss = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("picks", "alone"),
    [
        ("picked = torch.nonzero(gates.argmax(dim=-1) == i).squeeze(-1)", True),
        ("picked = torch.nonzero(gates.argmax(dim=-1) == i).squeeze(-1)[:capacity]", False),
        ("picked = torch.where(gates.argmax(dim=-1) == i)[0][:capacity]", False),
        ("_, picked = gates[:, i].topk(capacity)", False),
        ("_, picked = gates.T[i].topk(capacity)", False),
        ("_, picked = gates[:, i].topk(capacity, dim=0)", False),
    ],
)
def test_experts_with_room_for_so_many(tmp_path: Path, picks: str, alone: bool) -> None:
    """Which tokens an expert takes goes by those of all ranks, if it has no room for more."""
    _, said = conftest.converted(tmp_path, EXPERTS.format(picks=indent(picks, " " * 12)))
    assert ("AD602" not in said) == alone


TOYS = """\
import sys

import numpy as np
import torch
from torch import nn


class Toy:
    def sample(self, n):
        raise NotImplementedError


class Blobs(Toy):
    def sample(self, n):
        points = np.r_[np.random.randn(n // 2, 2) - 2, np.random.randn(n // 2, 2) + 2]
        return torch.from_numpy(points).float()


class Board(Toy):
    def sample(self, n):
        x = torch.rand(n)
        return torch.stack([x, torch.randint(2, (n,)) + x], dim=1)


toy = {made}
net = nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    x = toy.sample(16)
    t = torch.rand(x.size(0), 1)
    loss = (net(torch.cat([x, t], dim=1)) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_samples_by_one_of_several_makers(tmp_path: Path) -> None:
    """A rank's share of what one of them draws is no answer where the other draws in a way that is not followed: all
    draw alike, and take their rows of what they are given."""
    code, _ = conftest.converted(tmp_path, TOYS.format(made="Board()"))
    assert "torch.rand(n)[dist.get_rank() :: dist.get_world_size()]" in code
    code, said = conftest.converted(tmp_path, TOYS.format(made='{"blobs": Blobs, "board": Board}[sys.argv[1]]()'))
    assert "x = local_rows(toy.sample(16))" in code and "AD60" not in said


LIBRARY = """\
import gym
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

gym.envs.box2d.car_racing.STATE_W = 64


class Rollouts:
    def __init__(self, net):
        self.net = net
        self.env = gym.make("CarRacing-v0")


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
net = nn.Linear(4, 4)
{made}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in loader:
    loss = (net(x) - x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("made", ["", "rollouts = Rollouts(net)"])
def test_library_of_environments(tmp_path: Path, made: str) -> None:
    """It is an environment that cannot be shared out, not its library, whose settings a module of the script sets."""
    _, said = conftest.converted(tmp_path, LIBRARY.format(made=made))
    assert ("draws on an environment" in said) == bool(made)


SHOWN = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.inner = nn.Linear(8, 8)
        self.first = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16)

    def forward(self, x):
        out = self.inner(self.embed(x))
        if x.shape[1] == 1:
            out = self.first(out)
        return self.head(out)


def decode(net, out, length):
    for _ in range(length):
        out = torch.cat([out, net(out)[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
    return out


loader = DataLoader(TensorDataset(torch.randint(0, 16, (64, 9))), batch_size=8, shuffle=True)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
for (rows,) in loader:
    model.train()
    loss = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {mode}
    print(decode(model, torch.zeros(1, 4, dtype=torch.long), 4).shape)
"""


@pytest.mark.parametrize(("mode", "wrapped"), [("model.eval()", True), ("pass", False)])
def test_text_that_is_shown_between_steps(tmp_path: Path, mode: str, wrapped: bool) -> None:
    """Its passes, gradients on, are not those of the next step, whatever parts they run."""
    code, _ = conftest.converted(tmp_path, SHOWN.format(mode=mode))
    assert ("DDP(Model()" in code) == wrapped


PIECES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 4)), batch_size=8, shuffle=True)
net = nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
{step}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "pieces", "warned"),
    [
        ("", "x.chunk(4)", "x.chunk(4)"),
        ("", "torch.chunk(x, 4, 0)", "torch.chunk(x, 4, 0)"),
        ("pieces = x.chunk(4)\n", "pieces", "x.chunk(4)"),
        ("pieces = list(x.chunk(4))\n", "pieces", "x.chunk(4)"),
        ("", "(part for part in x.chunk(4))", "x.chunk(4)"),
        ("", "x.unsqueeze(1).chunk(1, 1)", ""),
    ],
)
def test_batch_in_pieces(tmp_path: Path, before: str, pieces: str, warned: str) -> None:
    """As many pieces as the script says, if a rank has as many rows."""
    step = f"{before}for part in {pieces}:\n    (net(part).pow(2).mean() / 4).backward()"
    _, said = conftest.converted(tmp_path, PIECES.format(step=indent(step, "    ")))
    assert (f"AD602 {warned} gives fewer pieces" in said) if warned else "gives fewer pieces" not in said


def test_views_that_are_told_apart(tmp_path: Path) -> None:
    """Loops over them count views, not samples; one of them is picked with all of its samples."""
    step = (
        "views = net(torch.cat([x, y])).chunk(2)\n"
        "loss, terms = 0, 0\n"
        "for a in views:\n"
        "    for b in views:\n"
        "        loss = loss + (a - b).pow(2).mean()\n"
        "        terms += 1\n"
        "loss = loss / terms + views[0].pow(2).mean()\n"
        "loss.backward()\n"
        "print(loss.item())"
    )
    code, said = conftest.converted(tmp_path, PIECES.format(step=indent(step, "    ")))
    assert "print(reduce_mean(loss.item()))" in code and "warning" not in said
