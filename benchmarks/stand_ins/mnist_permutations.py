"""Permuted MNIST for continual learning: the pixels of each task lie in another order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ._pictures import patterned

TASKS = 3
COUNTS = (160, 80)
"""Of training and of test pictures."""


def write(folder: Path) -> None:
    """``mnist_permutations.pt``: for training and for test a list of tasks, each ``[title, pictures, labels]``, with
    pictures of 784 numbers from 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(784, generator=generator) for _ in range(TASKS)]
    parts = []
    for seed, count in enumerate(COUNTS):
        labels = np.arange(count) % 10
        pictures = torch.from_numpy(patterned(labels, (784,), seed)).float() / 255
        parts.append([["random permutation", pictures[:, order], torch.from_numpy(labels)] for order in orders])
    torch.save(parts, folder / "mnist_permutations.pt")
