"""Leaves by number of disease, and a flat folder of leaves to tell: ``train/NUMBER/*.jpg`` and ``test/*.jpg``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save, save_all


def write(folder: Path) -> None:
    """80 pictures of four diseases, 8 without."""
    labels = np.arange(80) % 4
    for number, (label, pixels) in enumerate(zip(labels, patterned(labels, (48, 48, 3)), strict=True)):
        save(folder / "train" / str(label) / f"{number:05d}.jpg", pixels)
    save_all(folder / "test", 8, (48, 48), seed=1)
