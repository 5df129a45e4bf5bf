"""Slices through the liver, each next to the picture of where it is, as a small U-Net reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

COUNTS = {"train": 32, "val": 8}
SIDE = 32


def write(folder: Path) -> None:
    """``train`` and ``val`` with ``NUMBER.png`` (32 x 32, RGB, numbers of three digits from 0) and
    ``NUMBER_mask.png`` (as large, white where a bright figure lies)."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        for number in range(count):
            pixels, inside = figure(rng, SIDE, square=number % 2 == 1)
            save(folder / part / f"{number:03d}.png", pixels)
            save(folder / part / f"{number:03d}_mask.png", 255 * inside.astype(np.uint8))
