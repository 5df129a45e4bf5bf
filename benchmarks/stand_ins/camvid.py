"""CamVid: pictures of streets, the class of each pixel by number, and once more by colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

SIDE = 48
COUNTS = {"train": 24, "val": 8, "test": 8}
COLORS = np.array([(0, 0, 0), (128, 64, 128)], np.uint8)
"""What is neither, and a road, of the colours that the data set names."""
NUMBERS = np.array([11, 4], np.uint8)


def write(folder: Path) -> None:
    """``PART/NUMBER.png``, ``PARTannot/NUMBER.png`` (11: no class, 4: a street) and ``PART_labels/NUMBER_L.png``."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        for number in range(count):
            pixels, mask = figure(rng, SIDE, number % 2 == 0)
            inside = (mask > 0).astype(int)
            save(folder / part / f"{number:04d}.png", pixels)
            save(folder / f"{part}annot" / f"{number:04d}.png", NUMBERS[inside])
            save(folder / f"{part}_labels" / f"{number:04d}_L.png", COLORS[inside])
