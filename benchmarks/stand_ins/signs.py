"""Hand signs, 64 x 64: pictures in a folder each for training, validation and test, named for the class they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

COUNTS = {"train": 72, "val": 24, "test": 24}
CLASSES = 6


def write(folder: Path) -> None:
    """``train_signs/CLASS_IMG_NUMBER.jpg`` and so for ``val_signs`` and ``test_signs``."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        labels = np.arange(count) % CLASSES
        for number, pixels in enumerate(patterned(labels, (64, 64, 3), seed)):
            save(folder / f"{split}_signs" / f"{labels[number]}_IMG_{number:04d}.jpg", pixels)
