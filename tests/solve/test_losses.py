"""How losses lie over the ranks: which are means over samples, which are sums, and what is multiplied for that."""

from __future__ import annotations

import ast

import pytest
from programs import CATALOG, traced

from autodist.placement import Each, Partial, Placement
from autodist.placement.lattice import PIECES
from autodist.solve.losses import Losses
from autodist.solve.sources import sources

HEAD = """\
import kornia
import random
import torch
import torch.nn.functional as F
import zoo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))


class Halved(nn.Linear):
    def forward(self, x):
        return super().forward(x) / 2


def collate(samples):
    random.shuffle(samples)
    return default_collate(samples)


loader = DataLoader(data, batch_size=8, shuffle=True)
collated = DataLoader(data, batch_size=8, collate_fn=collate)
layers = [nn.Linear(4, 4) for _ in range(3)]
net = nn.Linear(4, 3)
mean, spread = nn.Linear(4, 4), nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
BACKWARD = "\nopt.zero_grad()\nloss.backward()\nopt.step()"
MEAN, SUM = Partial("mean", "rows"), Partial("sum")
DIVERGENCE = "kl = (mean(x) ** 2 - spread(x)).sum()\n"


def losses(text: str, over: str = "x, y in loader", backward: str = BACKWARD) -> Losses:
    """The losses of a step of a training."""
    step = "\n".join("    " + line for line in (text + backward).splitlines())
    program = traced(f"{HEAD}\nfor {over}:\n{step}\n")
    return Losses(program, sources(program, CATALOG).plan, CATALOG)


def lying(found: Losses) -> list[Placement]:
    return [each for node in passes(found) for each in found.of(node)]


def passes(found: Losses) -> list[ast.AST]:
    """The backward passes of a program."""
    return list(dict.fromkeys(each.node for each in found.backward))


@pytest.mark.parametrize(
    ("step", "over"),
    [
        ("loss = F.cross_entropy(net(x), y)", ""),
        ("loss = F.cross_entropy(net(x), y) + 0 * mean(x).sum()", ""),  # a layer that is kept in the graph
        ("loss = F.cross_entropy(Halved(4, 3)(x), y)", ""),  # the pass of the class that it derives from
        ("loss = F.cross_entropy(net(nn.Sequential(*layers[1:], nn.ReLU())(x)), y)", ""),
        ("loss = F.cross_entropy(net(x), y)", "x, y in collated"),
        ("n = len(x) // 2\nloss = F.cross_entropy(net(x[:n]), y[:n])", ""),  # of each rank's samples, the first half
        ("a, b = net(x).chunk(2)\nloss = (a - b).pow(2).mean()", ""),
        ("a, b = x.view(2, -1, 4)\nloss = (net(a) - net(b)).pow(2).mean() + net(x).pow(2).mean()", ""),
        ("a, b = torch.split(net(x), len(x) // 2)\nloss = (a - b).pow(2).mean()", ""),
        ("out = net(torch.cat([x, -x]))\nloss = F.mse_loss(out[: len(x)], out[len(x) :])", ""),
        ("mixed = x + x[torch.randperm(len(x))]\nloss = F.cross_entropy(net(mixed), y)", ""),
        ("loss = F.cross_entropy(net(x), y, reduction='none').sum() / max(1, len(x))", ""),
        ("w = torch.full((len(x),), 1 / len(x))\nloss = (w * F.cross_entropy(net(x), y, reduction='none')).sum()", ""),
        ("p = torch.distributions.Beta(1.0, 1.0).sample((len(x), 1))\nloss = F.cross_entropy(net(p * x), y)", ""),
        ("weight = 1 + (y > 1).float()\nloss = F.binary_cross_entropy(net(x)[:, 0], y / 3, weight=weight)", ""),
    ],
)
def test_means_over_samples(step: str, over: str) -> None:
    found = losses(step, over or "x, y in loader")
    evenly = [each == MEAN or each == Partial("mean", "rows // 2") for each in lying(found)]
    assert evenly == [True], lying(found)
    assert not found.assumed and not list(found.sums()) and not found.terms()


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.cross_entropy(net(x), y, reduction='sum')",
        "loss = 0\nfor row, label in zip(x, y):\n    loss = loss + F.cross_entropy(net(row), label)",
        "loss = F.cross_entropy(net(x), y, reduction='sum') / 64",
    ],
)
def test_sums_are_multiplied(step: str) -> None:
    found = losses(step)
    assert lying(found) == [SUM] and list(found.sums()) == passes(found)


@pytest.mark.parametrize(
    ("step", "multiplied"),
    [
        ("loss = F.cross_entropy(net(x), y) + kl", ["kl"]),
        ("loss = F.cross_entropy(net(x), y)\nloss += kl", ["kl"]),
        ("loss = kl + sum(p.pow(2).sum() for p in net.parameters())", ["kl"]),
        ("loss = F.cross_entropy(net(x), y) + kl - mean(x).abs().sum()", ["kl", "mean(x).abs().sum()"]),
        ("loss = F.cross_entropy(net(x), y) * kl", []),  # no sum of both
    ],
)
def test_sums_beside_means(step: str, multiplied: list[str]) -> None:
    found = losses(DIVERGENCE + step)
    assert [each.source.code(each.node) for each in found.terms()] == multiplied
    assert not list(found.sums())


def test_a_term_that_is_evaluated_on_whole_data() -> None:
    """There every rank has the sum over all of them: it is multiplied where gradients flow, which has to be told."""
    step = "loss = objective(x, y)"
    evaluated = "\nwith torch.no_grad():\n    objective(*data.tensors)\n"
    function = f"def objective(x, y):\n    {DIVERGENCE}    return F.cross_entropy(net(x), y) + kl\n"
    body = "\n".join("    " + line for line in (step + BACKWARD).splitlines())
    program = traced(f"{HEAD}\n{function}\nfor x, y in loader:\n{body}\n{evaluated}")
    (term,) = Losses(program, sources(program, CATALOG).plan, CATALOG).terms()
    assert term.is_evaluated


@pytest.mark.parametrize(
    ("parts", "each", "wanted"),
    [
        ("zip(x.split(3), y.split(3))", "F.cross_entropy(net(p), q)", Each(PIECES)),
        ("((x[i : i + 3], y[i : i + 3]) for i in range(0, len(x), 3))", "F.cross_entropy(net(p), q)", Each(PIECES)),
        ("zip(x.split(3), y.split(3))", "F.cross_entropy(net(p), q, reduction='sum')", Each("rows")),
        ("zip(x, y)", "F.cross_entropy(net(p), q)", Each("rows")),
    ],
)
def test_pieces_of_a_batch(parts: str, each: str, wanted: Placement) -> None:
    """A mean over a piece is one where a rank's share is a multiple of its size, a sum anywhere."""
    backward = "\nopt.step()"
    found = losses(f"opt.zero_grad()\nfor p, q in {parts}:\n    {each}.backward()", backward=backward)
    assert lying(found) == [wanted] and list(found.sums()) == passes(found)
    assert bool(list(found.in_pieces())) == (wanted == Each(PIECES))


@pytest.mark.parametrize(
    ("step", "assumed"),
    [
        ("loss = F.cross_entropy(net(kornia.enhance.shift(x)), y)", ["kornia.enhance.shift"]),
        ("loss = F.cross_entropy(zoo.turned(zoo.bent(net(x))), y)", ["zoo.bent", "zoo.turned"]),
        ("loss = F.cross_entropy(net(x), zoo.names(['a', 'b']))", []),
    ],
)
def test_what_is_not_known_is_taken_to_leave_samples_apart(step: str, assumed: list[str]) -> None:
    """And is told, so that somebody can say whether it does."""
    assert sorted(each.name for each in losses(step).assumed) == assumed


@pytest.mark.parametrize(
    "step",
    [
        "z = net(x)\nloss = F.cross_entropy(z @ z.t(), torch.arange(len(z)))",
        "out = net(x)\nloss = (out / out.std(0)).mean()",
        "some = torch.randperm(len(x))[:4]\nz = net(x)\nloss = (z[some] @ z.t()).mean()",
        "loss = F.cross_entropy(net(zoo.bent(x)), y) / x.std()",
        "for row, label in zip(x, y):\n    loss = F.cross_entropy(net(row), label)",  # the last of a rank's alone
    ],
)
def test_samples_that_meet_others(step: str) -> None:
    found = losses(step)
    assert [type(each).__name__ for each in lying(found)] == ["PerRank"] and not list(found.sums())


EACH = "each = F.cross_entropy(net(x), y, reduction='none')\nhard = [one for one in each if one > 1]\n"


@pytest.mark.parametrize(
    ("step", "over"),
    [
        ("loss = F.cross_entropy(net(x), y, ignore_index=0)", "weighted by ignore_index"),
        ("loss = F.cross_entropy(net(x)[y > 0], y[y > 0])", "over the samples that y > 0 leaves"),
        ("out = torch.cat([row[:n] for row, n in zip(net(x), y)])\nloss = out.mean()", "over what row[:n] joins"),
        ("loss = F.cross_entropy(net(x), y)", ""),
        ("loss = 2 * F.cross_entropy(net(x)[y > 0], y[y > 0]) + 1", "over the samples that y > 0 leaves"),
    ],
)
def test_means_over_what_ranks_have_different_numbers_of(step: str, over: str) -> None:
    assert [told for _, told in losses(step).weighted()] == [over] * bool(over)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (EACH + "loss = sum(hard) / max(len(hard), 1)", True),
        (EACH + "loss = sum(hard) / 8 + 0.1 * each.mean()", False),
        (EACH + "loss = sum(one for one in each) / 8", False),
    ],
)
def test_sums_that_may_have_no_gradient(step: str, told: bool) -> None:
    """A rank without any of the samples that a condition leaves has a number for a loss."""
    assert bool([*losses(step).empty_at()]) == told


@pytest.mark.parametrize(
    ("step", "test"),
    [
        ("out = net(x)\nif out.mean() > 0:\n    out = 2 * out\nloss = out.mean()", "out.mean() > 0"),
        ("out = net(x)\nloss = (2 * out if out.max() > 1 else out).mean()", "out.max() > 1"),
        ("out = net(x)\nif len(x) > 1:\n    out = 2 * out\nloss = out.mean()", ""),
        ("out = net(x)\nif x.dim() > 2:\n    out = out.mean(2)\nloss = out.mean()", ""),
        ("loss = sum(2 * row.sum() if row.sum() > 0 else row.sum() for row in net(x))", ""),
    ],
)
def test_what_a_ranks_own_samples_decide_over(step: str, test: str) -> None:
    assert [*dict.fromkeys(ast.unparse(each) for _, each in losses(step).decided_at())] == [test] * bool(test)
