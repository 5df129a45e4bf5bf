"""BreastMNIST of MedMNIST, an ``.npz`` file, with the number of pictures that the library asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ._pictures import patterned

COUNTS = {"train": 546, "val": 78, "test": 156}


def write(folder: Path) -> None:
    """``breastmnist.npz``: ``SPLIT_images`` of 28 x 28, grey, and ``SPLIT_labels`` of (count, 1)."""
    arrays: dict[str, Any] = {}
    for seed, (split, count) in enumerate(COUNTS.items()):
        labels = np.arange(count) % 2
        arrays[f"{split}_images"] = patterned(labels, (28, 28), seed)
        arrays[f"{split}_labels"] = labels[:, None].astype(np.uint8)
    np.savez(folder / "breastmnist.npz", **arrays)
