"""Pairs of pictures side by side in one file, as large as Pix2Pix was written for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

SIDE = 256
COUNTS = {"train": 24, "val": 8}


def write(folder: Path) -> None:
    """``train`` and ``val`` with ``NUMBER.jpg`` (512 x 256): the picture on the left, its figure in black and white on
    the right."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        for number in range(count):
            pixels, inside = figure(rng, SIDE, square=number % 2 == 1)
            mask = np.repeat(255 * inside[..., None].astype(np.uint8), 3, axis=2)
            save(folder / split / f"{number}.jpg", np.concatenate((pixels, mask), axis=1))
