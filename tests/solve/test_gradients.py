"""What makes losses those of the whole batch where a mean of the ranks is none: weighed means and joined sums."""

from __future__ import annotations

import pytest
from programs import CATALOG, traced

from autodist.placement import Partial
from autodist.solve.alone import Alone
from autodist.solve.gradients import Gradients, Joined, Weighed
from autodist.solve.losses import Losses
from autodist.solve.sources import sources

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Boxes(Dataset):
    def __init__(self):
        self.images, self.counts = torch.randn(32, 8), torch.randint(1, 5, (32,))
        self.boxes = torch.rand(32, 4, 4)

    def __len__(self):
        return 32

    def __getitem__(self, i):
        n = int(self.counts[i])
        return self.images[i], self.boxes[i, :n]


def collate(batch):
    images, boxes = zip(*batch)
    return torch.stack(images), list(boxes)


class Centre(nn.Module):
    def statistics(self, x):
        mean = x.mean(0)
        return mean, ((x - mean) ** 2).mean(0)

    def forward(self, x):
        mean, variance = self.statistics(x)
        return (x - mean) / (variance + 1e-5).sqrt()


w = torch.tensor([1.0, 2.0, 3.0])
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))), batch_size=8, shuffle=True)
pictures = DataLoader(Boxes(), batch_size=8, collate_fn=collate)
net, boxes = nn.Linear(8, 3), nn.Linear(8, 16)
deep = nn.Sequential(nn.Linear(8, 8), Centre(), nn.Linear(8, 8), Centre(), nn.Linear(8, 3))
weighing = nn.CrossEntropyLoss(w)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
BACKWARD = "\nopt.zero_grad()\nloss.backward()\nopt.step()"
OUT = "out = boxes(x).view(-1, 4, 4)\n"


def mended(step: str, over: str = "x, y in loader") -> tuple[list[str], list[str]]:
    """The divisors of means that are weighed, and the sums and means that are joined."""
    lines = "\n".join("    " + line for line in (step + BACKWARD).splitlines())
    program = traced(f"{HEAD}\nfor {over}:\n{lines}\n")
    losses = Losses(program, sources(program, CATALOG).plan, CATALOG)
    found = [each for several in Gradients(program, losses, Alone()).mended().values() for each in several]
    weighed = [each.divisor.code for each in found if isinstance(each, Weighed)]
    return weighed, [each.source.code(each.node) for each in found if isinstance(each, Joined)]


@pytest.mark.parametrize(
    ("step", "divisor"),
    [
        ("loss = F.cross_entropy(net(x), y, ignore_index=0)", "(y != 0).sum()"),
        ("loss = F.cross_entropy(net(x), y, w)", "w[y].sum()"),  # by position
        ("loss = F.cross_entropy(net(x), y, None, None, 0)", "(y != 0).sum()"),
        ("loss = weighing(net(x), y)", "weighing.weight[y].sum()"),  # of a module, by position
        ("loss = 2 * weighing(net(x), y)", "weighing.weight[y].sum()"),
        ("loss = F.cross_entropy(net(x)[y > 0], y[y > 0])", "y[y > 0].numel()"),
        ("loss = F.cross_entropy(net(x), y, reduction='none')[y > 0].mean()", "(y > 0).sum()"),
        (
            "each = F.cross_entropy(net(x), y, reduction='none')\nn = (y > 0).sum()\nloss = (each * (y > 0)).sum() / n",
            "n",
        ),
        (
            "said = pack_padded_sequence(net(x), y.cpu(), True, False).data\n"
            "meant, *_ = pack_padded_sequence(x.long(), y.cpu(), True, False)\nloss = F.cross_entropy(said, meant)",
            "meant.numel()",
        ),
    ],
)
def test_means_over_other_numbers_are_weighed(step: str, divisor: str) -> None:
    assert mended(step) == ([divisor], [])


@pytest.mark.parametrize(
    ("step", "divisor"),
    [
        (
            "found = torch.cat([o[: len(b)] for o, b in zip(out, y)])\nloss = F.l1_loss(found, torch.cat(y))",
            "sum(map(len, y))",
        ),
        (
            "rows = []\nfor o, b in zip(out, y):\n    for i in range(len(b)):\n"
            "        rows.append((o[i] - b[i]).abs().sum())\nloss = torch.stack(rows).mean()",
            "len(rows)",
        ),
        (
            "rows = []\nfor o, b in zip(out, y):\n    rows.extend((o[: len(b)] - b).abs().sum(-1))\n"
            "loss = torch.stack(rows).mean()",
            "len(rows)",
        ),
        (  # numbers of a rank's own samples, beside those of what each of them has
            "image = torch.cat([torch.full((len(b),), i) for i, b in enumerate(y)])\n"
            "query = torch.cat([torch.arange(len(b)) for b in y])\nloss = F.l1_loss(out[image, query], torch.cat(y))",
            "sum(map(len, y))",
        ),
    ],
)
def test_parts_of_samples_of_which_each_has_its_own_number(step: str, divisor: str) -> None:
    assert mended(OUT + step, "x, y in pictures") == ([divisor], [])


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.cross_entropy(net(x), y)",
        "loss = F.cross_entropy(net(x), y, weight=None)",
        "loss = F.cross_entropy(net(x), y, ignore_index=0, reduction='sum')",
        "loss = torch.cat([o for o in net(x)]).pow(2).mean()",  # as many of each sample
        "each = F.cross_entropy(net(x), y, reduction='none')\nloss = (each + each.mean()).mean()",  # as it is
    ],
)
def test_means_over_samples_stay_as_they_are(step: str) -> None:
    assert mended(step) == ([], [])


@pytest.mark.parametrize(
    ("step", "sums"),
    [
        ("loss = F.mse_loss(net(x), w[y, None]).sqrt()", ["F.mse_loss(net(x), w[y, None])"]),
        ("total = net(x).pow(2).sum()\nloss = (0.5 * total).sqrt()", ["net(x).pow(2).sum()"]),
        ("out = net(x)\nloss = (out - out.mean(0)).pow(2).mean()", ["out.mean(0)"]),
        ("loss = F.cross_entropy(deep(x), y)", ["x.mean(0)", "((x - mean) ** 2).mean(0)"]),  # of both layers
        (
            "p = net(x).sigmoid()\nboth = (p * p).sum(0)\nloss = 1 - torch.mean(both / p.sum(0))",
            ["p.sum(0)", "(p * p).sum(0)"],
        ),
    ],
)
def test_sums_and_means_that_losses_are_computed_from_are_joined(step: str, sums: list[str]) -> None:
    assert mended(step) == ([], sums)


@pytest.mark.parametrize(
    "step",
    [
        "loss = torch.log(net(x).pow(2).sum()) + net(x).std(0).sum()",  # a deviation is no sum
        "loss = F.mse_loss(net(x), w[y, None])\nif net(x).mean() > 0:\n    loss = loss + torch.log(net(x).exp().sum())",
    ],
)
def test_nothing_is_joined_in_vain(step: str) -> None:
    """Where another part stays each rank's own, or ranks may not come there alike."""
    assert mended(step) == ([], [])


@pytest.mark.parametrize(
    ("loss", "divisor"),
    [
        ("F.cross_entropy(net(x), y, w)", "w[y[y != -100]].sum()"),
        ("weighing(net(x), y)", "weighing.weight[y[y != -100]].sum()"),
        ("F.cross_entropy(net(x), y)", "(y != -100).sum()"),
    ],
)
def test_labels_that_are_left_out_when_losses_are_not_told_what_to(loss: str, divisor: str) -> None:
    assert mended(f"y[x[:, 0] > 0] = -100\nloss = {loss}") == ([divisor], [])


def test_a_mean_that_is_weighed_lies_as_any_mean() -> None:
    program = traced(f"{HEAD}\nfor x, y in loader:\n    loss = weighing(net(x), y)\n    loss.backward()\n")
    losses = Losses(program, sources(program, CATALOG).plan, CATALOG)
    (node,) = {each.node for each in losses.backward}
    assert losses.of(node) == [Partial("mean", "what counts of rows")]
    Gradients(program, losses, Alone()).mended()
    assert losses.of(node) == [Partial("mean", "rows")]
