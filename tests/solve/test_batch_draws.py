"""What steps draw once for a whole batch, and whether rank 0 can draw it for all ranks."""

from __future__ import annotations

import ast

import pytest
from programs import CATALOG, traced

from autodist.placement.propagate import propagate
from autodist.solve.batch_draws import BatchDraws
from autodist.solve.draws import Draws
from autodist.solve.sources import sources

SCRIPT = """\
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Beta, Normal
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--dim", type=int, default=4)
args = parser.parse_args()


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.load("rows.pt")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.rows[i].sum()


def padded(samples):
    return pad_sequence([x for x, _ in samples], batch_first=True), torch.stack([y for _, y in samples])


class Shift(nn.Module):
    def forward(self, x):
        return x + torch.randn(4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x + torch.randn(3)) * torch.rand(1)


loader = DataLoader(Rows(), batch_size=8, shuffle=True, collate_fn={collate})
model, scale, drop, shift = Net(), nn.Parameter(torch.ones(4)), nn.Dropout(), Shift()
optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
for epoch in range(2):
    {epoch}
    for x, y in loader:
        z = 0
        {step}
        loss = F.mse_loss(model(x + z) * scale, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
OF_MODEL = {"torch.rand(1)": True}
"""The number by which the model of the script scales what it gives."""


def found(step: str, collate: str = "None", epoch: str = "pass") -> dict[str, bool]:
    program = traced(SCRIPT.format(step=step, collate=collate, epoch=epoch))
    placements = propagate(program, sources(program, CATALOG).plan, catalog=CATALOG)
    draws = BatchDraws(program, Draws(program, CATALOG), CATALOG, placements).found()
    return {ast.unparse(draw.node): joined for draw, joined in draws}


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.randn(4)",
        "torch.randn(args.dim)",
        "torch.randn((1, args.dim))",
        "torch.rand(x.shape[1])",
        "torch.rand(x.size(1))",
        "torch.rand(1, x.size(-1))",
        "torch.rand(x.shape[1:])",
        "torch.rand(*x.shape[1:])",
        "torch.rand((1, *x.shape[1:]), device=x.device)",
        "torch.randn_like(x[:1])",
        "torch.randn_like(x[0:1])",
        "torch.randn_like(x[-1:])",
        "torch.randn_like(x[0])",
        "torch.randn_like(x.mean(0))",
        "torch.randn_like(scale)",
        "torch.bernoulli(torch.full((4,), 0.5))",
        "torch.normal(0.0, 1.0, (4,))",
        "torch.normal(torch.zeros(4), 1.0)",
        "torch.empty(4).uniform_()",
        "x.new_empty(args.dim).normal_()",
        "F.dropout(torch.ones(4))",
        "F.dropout(torch.ones(args.dim), 0.1)",
        "drop(torch.ones(4))",
        "Beta(1.0, 1.0).sample()",
        "Normal(torch.zeros(4), 1.0).rsample()",
        "torch.randint(0, args.dim, (4,))",
    ],
)
def test_rank_zero_draws_for_all(drawn: str) -> None:
    """Their sizes are those of one process on each rank, in whatever way they are said."""
    assert found(f"z = {drawn}") == {drawn: True} | OF_MODEL


def test_a_module_without_parameters_draws_for_the_batch() -> None:
    assert found("z = shift(x)") == {"torch.randn(4)": True} | OF_MODEL


@pytest.mark.parametrize(
    ("step", "drawn"),
    [
        ("z = F.dropout(scale)", "F.dropout(scale)"),  # gradients flow through it
        ("z = Normal(scale, 1.0).rsample()", "Normal(scale, 1.0).rsample()"),
        ("z = torch.rand(4) if x.sum() > 0 else 0", "torch.rand(4)"),
        ("while z < x.sum(): z = z + torch.rand(4)", "torch.rand(4)"),
        ("for _ in range(int(x.sum())): z = z + torch.rand(4)", "torch.rand(4)"),
    ],
)
def test_rank_zero_cannot_draw(step: str, drawn: str) -> None:
    assert found(step)[drawn] is False


@pytest.mark.parametrize("size", ["x.shape[1]", "x.size(1)", "x.shape[1:]", "1, x.size(1)"])
def test_sizes_of_what_a_rank_fills_up(size: str) -> None:
    """Each rank fills up to the longest of its own samples."""
    assert found(f"z = torch.rand({size})", collate="padded")[f"torch.rand({size})"] is False
    assert found(f"z = torch.rand({size})")[f"torch.rand({size})"] is True


def test_rounds_by_what_a_rank_fills_up() -> None:
    step = "for t in range(x.size(1)): z = z + torch.rand(4)"
    assert found(step, collate="padded")["torch.rand(4)"] is False
    assert found(step)["torch.rand(4)"] is True


@pytest.mark.parametrize(
    "step",
    [
        "z = torch.randn(len(x), 4)",
        "z = torch.randn(x.shape)",
        "z = torch.randn_like(x)",
        "z = torch.randn_like(x[:, :1])",
        "z = F.dropout(x)",
        "x = x[torch.randperm(len(x))]",
        "picked = torch.randint(len(x), (8,)); x, y = x[picked], y[picked]",
        "x = torch.stack([row + torch.rand(4) for row in x])",
        "x = torch.stack([torch.rand(4) for _ in range(len(x))])",
        "z = F.dropout(torch.ones(4), training=False)",
        "z = torch.rand(4, generator=torch.Generator().manual_seed(0))",
        "z = torch.empty_like(scale)",
    ],
)
def test_what_is_drawn_for_a_ranks_samples_is_not(step: str) -> None:
    assert found(step) == OF_MODEL


def test_an_order_of_data_is_not() -> None:
    """Nor what is drawn ahead of an epoch, unless losses are computed of it."""
    assert found("pass", epoch="rows = torch.load('rows.pt')[torch.randperm(64)]") == OF_MODEL
    assert found("z = shared", epoch="shared = torch.randn(4)") == {"torch.randn(4)": True} | OF_MODEL
