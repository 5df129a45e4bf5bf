"""Loaders of the script's own that put all samples in an order, augment them, and cut them into batches."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Loader:
    def __init__(self, shuffle=True):
        data = torch.load("data.pt")
        self.images, self.labels = data["images"], data["labels"]
        self.rng = np.random.default_rng(0)
        self.shuffle = shuffle

    def __len__(self):
        return len(self.images) // 16

    def __iter__(self):
        images = {images}
        order = {order}
        for i in range(len(self)):
            chosen = order[i * 16 : (i + 1) * 16]
            yield images[chosen], self.labels[chosen]


def flip(images):
    flipped = (torch.rand(len(images)) < 0.5).view(-1, 1, 1, 1)
    return torch.where(flipped, images.flip(-1), images)


def hide(images):
    n, c, h, w = images.shape
    left = torch.randint(0, w - 2, size=(n,))
    columns = torch.arange(w).view(1, 1, 1, w) - left.view(-1, 1, 1, 1)
    return images.masked_fill((columns >= 0) * (columns < 2), 0)


loader = Loader()
net = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for images, labels in loader:
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def converted(folder: Path, images: str, order: str) -> tuple[str, str]:
    """The script with these images and this order."""
    return conftest.converted(folder, SCRIPT.replace("{images}", images).replace("{order}", order))


@pytest.mark.parametrize(
    "order",
    [
        "torch.randperm(len(images))",
        "(torch.randperm if self.shuffle else torch.arange)(len(images), device=images.device)",
        "torch.randperm(len(images)) if self.shuffle else torch.arange(len(images))",
        "np.random.choice(len(images), len(images), replace=False)",
        "torch.from_numpy(np.random.choice(len(images), len(images), replace=False))",
        "torch.multinomial(torch.ones(len(images)), len(images))",
        "self.rng.permutation(len(images))",
        "torch.rand(len(images)).argsort()",
    ],
)
def test_an_order_is_no_batch(tmp_path: Path, order: str) -> None:
    """A rank that took its share of it would find every other slice of it empty."""
    after, said = converted(tmp_path, "self.images", order)
    assert "for images, labels in map(local_rows, loader):" in after, said
    assert f"order = {order}" in after


@pytest.mark.parametrize("images", ["flip(self.images)", "hide(self.images)", "hide(flip(self.images))"])
def test_what_is_drawn_for_all_samples_is_no_batch(tmp_path: Path, images: str) -> None:
    """It is drawn once an epoch, ahead of the loop that yields."""
    after, said = converted(tmp_path, images, "torch.randperm(len(images))")
    assert "for images, labels in map(local_rows, loader):" in after, said
    assert "local_rows(torch.rand" not in after


def test_an_order_that_is_a_list(tmp_path: Path) -> None:
    after, said = converted(tmp_path, "self.images", "random.sample(range(len(images)), len(images))")
    assert "in map(local_rows, loader):" in after and "AD602" not in said


EPISODES = """\
import random

import numpy as np
import torch
from torch import nn

episodes = [np.random.randn(6, 4) for _ in range(20)]


def get_batch(batch_size):
    chosen = np.random.choice(len(episodes), size=batch_size)
    states, targets = [], []
    for i in range(batch_size):
        episode = episodes[int(chosen[i])]
        at = random.randint(0, 5)
        states.append(episode[at : at + 1].reshape(1, -1))
        targets.append(episode[at : at + 1].sum(1).reshape(1, 1))
    return torch.from_numpy(np.concatenate(states, 0)).float(), torch.from_numpy(np.concatenate(targets, 0)).float()


def step():
    x, y = get_batch(8)
    loss = ((model(x).reshape(-1, 1) - y.reshape(-1, 1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    step()
"""


@pytest.mark.parametrize(("loss", "told"), [(".mean()", None), ("[y > 0].mean()", "AD604")])
def test_a_function_that_goes_over_what_it_has_drawn(tmp_path: Path, loss: str, told: str | None) -> None:
    """It counts the samples of all ranks, and draws more for each (decision transformers): its batch is shared out."""
    after, said = conftest.converted(tmp_path, EPISODES.replace(".mean()", loss))
    assert "chosen = np.random.choice(len(episodes), size=batch_size)\n" in after
    assert told is None or told in said
    assert "x, y = local_rows(get_batch(8))" in after and "AD602" not in said, said
