"""Pictures of four classes, a folder for each, for training and validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

NAME = "imagefolder"


def write(folder: Path) -> None:
    """``train/class_0/00000.png`` and so on, and ``val/``: 64 x 64 pixels."""
    for seed, (split, count) in enumerate((("train", 128), ("val", 32))):
        labels = np.arange(count) % 4
        for number, (label, pixels) in enumerate(zip(labels, patterned(labels, (64, 64, 3), seed), strict=True)):
            save(folder / split / f"class_{label}" / f"{number:05d}.png", pixels)
