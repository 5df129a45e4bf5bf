"""Losses that no mean over the ranks gives, computed from the rows of all ranks."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import kornia


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        z = self.body(x)
        return self.head(z)


class Pair(Net):
    def forward(self, x):
        z = self.body(x)
        return self.head(z), z


def weights(labels):
    return 1 / (torch.bincount(labels, minlength=3) + 1)


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = {model}()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def converted(folder: Path, step: str, model: str = "Net") -> tuple[str, str]:
    """The conversion and what is said of it."""
    return conftest.converted(folder, SCRIPT.format(step=indent(step, " " * 8), model=model))


@pytest.mark.parametrize(
    "step",
    [
        "out = model(x)\nloss = F.cross_entropy(out, y) + F.cosine_similarity(out, out.flip(0)).mean()",
        "out = model(x)\nloss = F.cross_entropy(out, y, weight=weights(y))",
        "out = model(x)[:, 0]\nt = y.float()\nu, v = out - out.mean(), t - t.mean()\n"
        "loss = 1 - (u * v).sum() / (u.norm() * v.norm())",
        "out = model(x)\nloss = torch.linalg.svdvals(out).sum()",
        "each = F.cross_entropy(model(x), y, reduction='none')\n"
        "loss = each[each > torch.quantile(each.detach(), 0.5)].mean()",
        "out = model(x)\nkinds = torch.unique(y)\ncentres = torch.stack([out[y == k].mean(0) for k in kinds])\n"
        "loss = F.cross_entropy(-torch.cdist(out, centres), torch.searchsorted(kinds, y))",
        "out = model(x)\nloss = kornia.losses.focal_loss(out, y)",
    ],
)
def test_outputs_and_labels_are_gathered(tmp_path: Path, step: str) -> None:
    """Where every rank computes the loss of the batch, what is printed of it needs no reduction."""
    after, said = converted(tmp_path, step)
    assert "RowsOfAllRanks.apply(" in after and "AD602" not in said
    assert ("print(loss.item())" in after) == ("flip" not in step)  # a part of which is a mean over a rank's samples


def test_a_name_that_is_read_again_is_gathered_once(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, "loss = F.cross_entropy(model(x), y, weight=weights(y))")
    assert (
        "        y = RowsOfAllRanks.apply(y)\n        loss = F.cross_entropy(RowsOfAllRanks.apply(model(x)), y,"
        in after
    )


def test_outputs_that_come_in_a_tuple(tmp_path: Path) -> None:
    after, said = converted(
        tmp_path, "out, z = model(x)\nloss = F.cross_entropy(out, y) + torch.corrcoef(z.t()).pow(2).sum()", "Pair"
    )
    assert "torch.corrcoef(RowsOfAllRanks.apply(z).t())" in after and "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "loss = F.cross_entropy(model(x), y)",
        "loss = F.cross_entropy(model(x).clamp(-5, 5).view(8, -1), y)",
        "loss = (model(x).softmax(1) * F.one_hot(y, 3)).sum(1).log().neg().mean()",
        "x = kornia.augmentation.RandomHorizontalFlip()(x)\nloss = F.cross_entropy(model(kornia.filters.blur(x)), y)",
    ],
)
def test_means_over_samples_stay_as_they_are(tmp_path: Path, step: str) -> None:
    after, said = converted(tmp_path, step)
    assert "RowsOfAllRanks" not in after and "AD602" not in said


def test_gradients_of_a_rank_s_own_rows_are_gathered(tmp_path: Path) -> None:
    step = (
        "x.requires_grad_()\nout = model(x)\ngrad = torch.autograd.grad(out.sum(), x, create_graph=True)[0]\n"
        "loss = F.cross_entropy(out, y) + torch.linalg.svdvals(grad).sum()"
    )
    after, said = converted(tmp_path, step)
    assert "torch.linalg.svdvals(RowsOfAllRanks.apply(grad))" in after and "AD602" not in said


COUNTED = (
    "        out = model(x)\n        loss = F.cross_entropy(out, y)\n        hits += (out.argmax(1) == y).sum().item()"
)


@pytest.mark.parametrize("begin", ["", "    if epoch % 2 == 0:\n        hits = 0\n", "    hits = 0\n"])
def test_a_sum_that_goes_on_from_epoch_to_epoch(tmp_path: Path, begin: str) -> None:
    """Made global after an epoch, it would hold what all ranks have, to which each adds its own again."""
    text = SCRIPT.format(step=COUNTED, model="Net")
    text = text.replace("for epoch in range(2):\n", f"hits = 0\nfor epoch in range(2):\n{begin}")
    after, _ = conftest.converted(tmp_path, text + "    print(hits)\n    print(hits / (epoch + 1))\n")
    assert "total_hits = reduce_sum(hits)\n    print(total_hits)" in after


def test_a_name_that_other_branches_read(tmp_path: Path) -> None:
    """Gathered in one branch alone, it would be this rank's in the other."""
    step = (
        "out = model(x)\nif epoch:\n    loss = F.cross_entropy(out, y, weight=weights(y))\n"
        "else:\n    loss = F.cross_entropy(out, y, weight=weights(y) + 1)"
    )
    after, said = converted(tmp_path, step)
    assert "AD602" not in said
    assert "        y = RowsOfAllRanks.apply(y)\n        if epoch:" in after


def test_one_loss_of_pairs_and_of_what_is_not_known(tmp_path: Path) -> None:
    """The rows that are compared are gathered, and those of which it is not known what becomes of them."""
    step = (
        "out, z = model(x)\nloss = F.cross_entropy(out, y) + out.diff(dim=0).pow(2).mean()\n"
        "loss = loss + torch.linalg.svdvals(z).mean()"
    )
    after, said = converted(tmp_path, step, "Pair")
    assert "torch.linalg.svdvals(RowsOfAllRanks.apply(z))" in after and "AD602" not in said


@pytest.mark.parametrize("chosen", ["each.topk(6).values", "torch.topk(each, 6)[0]", "each[each.topk(6).indices]"])
def test_the_hardest_samples_of_a_batch(tmp_path: Path, chosen: str) -> None:
    """They are chosen among those of all ranks, by whatever name `topk` hands them out."""
    after, said = converted(tmp_path, f"each = F.cross_entropy(model(x), y, reduction='none')\nloss = {chosen}.mean()")
    assert "RowsOfAllRanks.apply(" in after and "AD602" not in said
