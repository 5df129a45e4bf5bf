"""ISIC 2018: pictures of skin, and for each where the lesion is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

SIDE = 64


def write(folder: Path) -> None:
    """``PART/ISIC_NUMBER.jpg`` and ``PART_GT/ISIC_NUMBER_segmentation.png``, of the parts train, valid and test."""
    rng = np.random.default_rng(0)
    for part, count in {"train": 24, "valid": 8, "test": 8}.items():
        for number in range(count):
            pixels = rng.integers(100, 200, (SIDE, SIDE, 3), dtype=np.uint8)
            mask = np.zeros((SIDE, SIDE), np.uint8)
            top, left = rng.integers(8, 32, 2)
            pixels[top : top + 24, left : left + 24] -= 90
            mask[top : top + 24, left : left + 24] = 255
            save(folder / part / f"ISIC_{number:07d}.jpg", pixels)
            save(folder / f"{part}_GT" / f"ISIC_{number:07d}_segmentation.png", mask)
