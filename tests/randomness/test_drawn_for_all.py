"""Noise that all ranks draw alike is drawn for the samples of all of them, and each takes its own."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(0)
rng = np.random.default_rng(0)
for epoch in range(2):
    for x, y in loader:
        {step}
        loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {preview}
"""
SHARE = "[dist.get_rank() :: dist.get_world_size()]"


@pytest.mark.parametrize(
    ("step", "drawn"),
    [
        ("x = x + torch.randn(len(x), 4, generator=g)", "torch.randn(len(x) * dist.get_world_size(), 4, generator=g)"),
        (
            "x = x + torch.randn(x.shape, generator=g)",
            "torch.randn((x.shape[0] * dist.get_world_size(), *x.shape[1:]), generator=g)",
        ),
        (
            "x = x + torch.randn(*x.shape, generator=g)",
            "torch.randn(*(x.shape[0] * dist.get_world_size(), *x.shape[1:]), generator=g)",
        ),
        (
            "x = x + torch.rand_like(x, generator=g)",
            "torch.rand_like(x.repeat_interleave(dist.get_world_size(), 0), generator=g)",
        ),
        (
            "x = x + torch.randn(len(x) * 4, generator=g).view(len(x), 4)",
            "torch.randn(len(x) * 4 * dist.get_world_size(), generator=g).view(len(x) * dist.get_world_size(), 4)",
        ),
        (
            "x = x + rng.normal(size=(len(x), 1))",
            "rng.normal(size=(len(x) * dist.get_world_size(), 1))",
        ),
    ],
)
def test_in_steps(tmp_path: Path, step: str, drawn: str) -> None:
    """It repeated from rank to rank within a batch."""
    after, report = conftest.converted(tmp_path, SCRIPT.format(step=step, preview="pass"))
    assert drawn + SHARE in after
    assert "draws for this rank's samples" not in report


@pytest.mark.parametrize(
    ("seed", "drawn"),
    [
        ("g.manual_seed(0)", "torch.randn(x.size(0) * dist.get_world_size(), 4, generator=g)"),
        ("torch.manual_seed(0)", "torch.randn(x.size(0) * dist.get_world_size(), 4)"),
    ],
)
def test_previews(tmp_path: Path, seed: str, drawn: str) -> None:
    """The rows gathered of all ranks were those of one, once for each rank, in silence."""
    noise = drawn.replace(" * dist.get_world_size()", "")
    preview = f"{seed}\n    shown = model({noise})\n    torch.save(shown.detach(), 'shown.pt')"
    after = conftest.converted(tmp_path, SCRIPT.format(step="pass", preview=preview))[0]
    assert drawn + SHARE in after


def test_shared_with_an_evaluation(tmp_path: Path) -> None:
    """Where a function draws for a share of the samples and for all of them, it cannot be said for how many."""
    noisy = "def noisy(x):\n    return x + torch.randn(x.shape, generator=g)\n\n\nfor epoch"
    script = SCRIPT.replace("for epoch", noisy).format(
        step="x = noisy(x)", preview="print(model(noisy(torch.ones(8, 4))).mean().item())"
    )
    after, report = conftest.converted(tmp_path, script)
    assert "draws for this rank's samples" in report
    assert SHARE not in after


BY_HAND = """\
import random
import torch
from torch import nn

torch.manual_seed(0)
numbers = random.Random(3)
inputs, targets = torch.randn(64, 5), torch.randn(64, 1)
net = nn.Linear(5, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    index = torch.randint(len(inputs), (8,))
    x, y = inputs[index], targets[index]
    {step}
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("step", "for_all", "warned"),
    [
        ("x = x + torch.randn_like(x)", True, False),
        ("x = x + torch.randn_like(x[0])", False, False),
        ("one = x[0]; x = x + torch.randn(one.shape)", False, False),
        ("x = torch.stack([row + torch.randn_like(row) for row in x])", False, True),
        ("x = x + torch.empty_like(x).normal_()", False, True),
        ("x = torch.stack([row * numbers.random() for row in x])", False, True),
        ("x = torch.stack([row * random.Random(i).random() for i, row in enumerate(x)])", False, False),
        ("x = x * numbers.random()", False, False),
        ("held = (x, y); x = x + torch.randn_like(held[0])", True, False),
        ("order = torch.randperm(len(x)); x = x + x[order]", False, False),
    ],
)
def test_what_is_no_row_for_each_sample(tmp_path: Path, step: str, for_all: bool, warned: bool) -> None:
    """One sample's numbers were shared out as if they were samples, in silence; a permutation of the rows of all ranks
    picked rows that a rank has not."""
    after, report = conftest.converted(tmp_path, BY_HAND.format(step=step))
    assert ("repeat_interleave" in after) == for_all and after.count(SHARE) == 1 + for_all
    assert ("draws for this rank's samples" in report) == warned


HAND_MADE = """\
import torch
from torch import nn

torch.manual_seed(0)
xs, ys = torch.randn(64, 4), torch.randn(64, 1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 64, 8):
    x, y = xs[i : i + 8], ys[i : i + 8]
    weights = torch.distributions.Beta(0.4, 0.4).sample((len(x),))
    loss = (weights * (model(x) - y).square().mean(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_weights_of_samples(tmp_path: Path, zygote: Zygote | None) -> None:
    """Mixup of each sample, beside batches that are cut by hand: they repeated themselves from rank to rank."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(HAND_MADE)
    after.write_text(conftest.converted(tmp_path, HAND_MADE)[0])
    assert f"Beta(0.4, 0.4).sample((len(x) * dist.get_world_size(),)){SHARE}" in after.read_text()
    verdict = verify(before, after, [2], steps=4, workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
