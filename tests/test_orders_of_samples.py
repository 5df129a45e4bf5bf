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


def test_an_order_that_cannot_be_followed(tmp_path: Path) -> None:
    """Nothing is taken apart then."""
    after, said = converted(tmp_path, "self.images", "random.sample(range(len(images)), len(images))")
    assert "local_rows" not in after and "AD902" in said
