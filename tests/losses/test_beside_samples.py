"""Numbers of the whole batch, or of earlier loops, that losses are computed from, and gradients of several losses."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.kind = nn.Linear(16, 3)
        self.size = nn.Linear(16, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.size(h)


data = TensorDataset(torch.randn(128, 6), torch.randint(0, 3, (128,)), torch.randn(128, 1))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


"""
TRAINING = """\
for epoch in range(3):
    for x, y, t in loader:
        kind, size = model(x)
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
CENTROIDS = """\
for epoch in range(3):
    sums, counts = torch.zeros(3, 3), torch.zeros(3)
    with torch.no_grad():
        for x, y, t in loader:
            kind, _ = model(x)
            for k in range(3):
                sums[k] += kind[y == k].sum(0)
                counts[k] += (y == k).sum()
    centroids = sums / counts[:, None]
    for x, y, t in loader:
        kind, size = model(x)
        loss = F.cross_entropy(-torch.cdist(kind, centroids), y) + F.mse_loss(size, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DYNAMIC = """\
history = []
for epoch in range(4):
    weights = torch.ones(2)
    if epoch > 1:
        ratio = torch.tensor([history[-1][0] / history[-2][0], history[-1][1] / history[-2][1]])
        weights = 2 * torch.softmax(ratio / 2, 0)
    sums = [0.0, 0.0]
    for x, y, t in loader:
        kind, size = model(x)
        first, second = F.cross_entropy(kind, y), F.mse_loss(size, t)
        loss = weights[0] * first + weights[1] * second
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums[0] += first.item() / len(loader)
        sums[1] += second.item() / len(loader)
    history.append(sums)
"""
SEVERAL = """\
for epoch in range(3):
    for x, y, t in loader:
        kind, size = model(x)
        gradients = []
        for loss in (F.cross_entropy(kind, y), F.mse_loss(size, t)):
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            gradients.append([p.grad.clone() for p in model.trunk.parameters()])
        for p, one, other in zip(model.trunk.parameters(), *gradients):
            p.grad = one + other if (one * other).sum() > 0 else one
        optimizer.step()
"""
BALANCE = """\
balance = nn.Parameter(torch.ones(2))
tuner = torch.optim.Adam([balance], lr=0.01)
for epoch in range(3):
    for x, y, t in loader:
        kind, size = model(x)
        losses = torch.stack([F.cross_entropy(kind, y), F.mse_loss(size, t)])
        loss = (balance * losses).sum()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        shared = model.trunk[0].weight
        norms = [torch.autograd.grad(w * each, shared, create_graph=True)[0].norm() for w, each in zip(balance, losses)]
        norms = torch.stack(norms)
        balance.grad = torch.autograd.grad((norms - norms.mean().detach()).abs().sum(), balance)[0]
        optimizer.step()
        tuner.step()
"""


def test_sums_of_an_earlier_loop_are_those_of_all_ranks(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, HEAD + CENTROIDS)
    assert "sums[k] += reduce_sum(kind[y == k].sum(0))\n" in after
    assert "counts[k] += reduce_sum((y == k).sum())\n" in after


def test_items_of_lists_are_followed_to_the_loss(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, HEAD + DYNAMIC)
    assert "sums[0] += reduce_mean(first.item() / len(loader))\n" in after


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "weight = target.clone(); weight[target == 0] = positive / (positive + negative)",
            "positive, negative = reduce_sum(target.sum()), reduce_sum((1 - target).sum())",
        ),
        (
            "share = negative / (positive + negative); weight = torch.where(target > 0, share, 1 - share)",
            "positive, negative = reduce_sum(target.sum()), reduce_sum((1 - target).sum())",
        ),
        (
            "weight = target.masked_fill(target == 0, negative.item() / 9)",
            "target.masked_fill(target == 0, reduce_sum(negative.item()) / 9)",
        ),
    ],
)
def test_shares_of_the_batch_that_stand_for_samples(tmp_path: Path, body: str, expected: str) -> None:
    """Edge detection weighs pixels by how many of the batch are edges."""
    function = f"""\
def balanced(out, target):
    positive, negative = target.sum(), (1 - target).sum()
    {body}
    return F.binary_cross_entropy_with_logits(out, target, weight=weight)


"""
    after, _ = conftest.converted(
        tmp_path, HEAD + function + TRAINING.format(loss="loss = balanced(size, (y == 0).float().unsqueeze(1))")
    )
    assert expected in after


def test_counts_of_numpy_are_summed_up_as_arrays(tmp_path: Path) -> None:
    function = """\
def balanced(out, labels):
    counts = np.bincount(labels.numpy(), minlength=3)
    weights = torch.tensor(0.1 / (1.0 - np.power(0.9, counts + 1)), dtype=out.dtype)
    return F.cross_entropy(out, labels, weight=weights)


"""
    after, _ = conftest.converted(tmp_path, HEAD + function + TRAINING.format(loss="loss = balanced(kind, y)"))
    assert "counts = reduce_sum(np.bincount(labels.numpy(), minlength=3))\n" in after


def test_a_loop_over_losses_of_one_forward_pass(tmp_path: Path) -> None:
    """The wrapper takes one backward pass after each forward pass."""
    after, _ = conftest.converted(tmp_path, HEAD + SEVERAL)
    assert "DDP(" not in after
    assert "loss.backward(retain_graph=True)\n            average_gradients(optimizer)\n" in after


def test_gradients_of_a_ranks_own_are_warned_of(tmp_path: Path) -> None:
    _, messages = conftest.converted(tmp_path, HEAD + BALANCE)
    assert "AD602 balance.grad is computed from this rank's samples alone" in messages
    _, messages = conftest.converted(tmp_path, HEAD + SEVERAL)
    assert "AD602" not in messages


@pytest.mark.parametrize(
    ("loss", "gathered"),
    [
        ("loss = F.cross_entropy(kind, y) if kind.std() > 1 else F.mse_loss(size, t)", True),
        ("loss = F.cross_entropy(kind, y) if epoch else F.mse_loss(size, t)", False),
        ("loss = F.cross_entropy(kind, y) + F.mse_loss(size, t); flag = 1 if kind.std() > 1 else 0", False),
    ],
)
def test_ranks_choose_the_loss_by_all_samples(tmp_path: Path, loss: str, gathered: bool) -> None:
    after, messages = conftest.converted(tmp_path, HEAD + TRAINING.format(loss=loss))
    assert ("if gather_rows(kind).std() > 1 else F.mse_loss" in after) is gathered
    assert "decides on kind" not in messages


@pytest.mark.parametrize(
    ("loss", "sometimes"),
    [
        ("loss = F.cross_entropy(kind, y)\n        if epoch > 1:\n            loss = loss + F.mse_loss(size, t)", True),
        ("loss = F.cross_entropy(kind, y) + F.mse_loss(size, t)", False),
        (
            "loss = F.cross_entropy(kind, y)\n        if epoch > 1:\n            loss = loss + F.mse_loss(size, t)\n"
            "        else:\n            loss = loss + size.pow(2).mean()",
            False,
        ),
    ],
)
def test_outputs_that_some_steps_leave_out(tmp_path: Path, loss: str, sometimes: bool) -> None:
    after, _ = conftest.converted(tmp_path, HEAD + TRAINING.format(loss=loss))
    assert ("find_unused_parameters=True" in after) is sometimes


def test_groups_that_stand_across_the_samples_are_no_rows(tmp_path: Path) -> None:
    """The losses of groups (group DRO) are computed from those of all samples."""
    loss = (
        "each = F.cross_entropy(kind, y, reduction='none'); groups = (y == torch.arange(3).unsqueeze(1)).float(); "
        "loss = ((groups @ each) / (groups.sum(1) + 1)).max()"
    )
    after, messages = conftest.converted(tmp_path, HEAD + TRAINING.format(loss=loss))
    assert "loss = ((groups @ RowsOfAllRanks.apply(each)) /" in after
    assert "groups = (RowsOfAllRanks.apply(y) == torch.arange(3).unsqueeze(1)).float()" in after
    assert "AD602" not in messages and "AD906" not in messages


@pytest.mark.parametrize(
    ("share", "gathered"),
    [("int(0.1 * len(y))", True), ("len(y) // 2", False), ("int(0.1 * len(data))", True), ("5", True)],
)
def test_samples_that_are_drawn_of_a_batch(tmp_path: Path, share: str, gathered: bool) -> None:
    """A tenth of 16 samples is one, of two ranks' 8 it is none: all ranks draw of all samples."""
    loss = f"wrong = torch.randperm(len(y))[:{share}]; y = y.clone(); y[wrong] = 0; loss = F.cross_entropy(kind, y)"
    loss += " + F.mse_loss(size, t)"
    _, messages = conftest.converted(tmp_path, HEAD + TRAINING.format(loss=loss))
    assert ("AD606" in messages) is gathered and "AD602" not in messages
