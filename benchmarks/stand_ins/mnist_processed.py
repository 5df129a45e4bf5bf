"""MNIST as torchvision kept it until 2021, and as scripts of that time read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ._pictures import patterned


def write(folder: Path) -> None:
    """``training.pt`` and ``test.pt``: pictures (count x 28 x 28, uint8) and labels (int64)."""
    for seed, (name, count) in enumerate({"training.pt": 160, "test.pt": 80}.items()):
        labels = np.arange(count) % 10
        pictures = torch.from_numpy(patterned(labels, (28, 28), seed))
        torch.save((pictures, torch.from_numpy(labels)), folder / name)
