"""Grey pictures and their masks as arrays, as a U-Net for membranes of cells reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure

COUNTS = {"train": 32, "val": 8}
SIDE = 32


def write(folder: Path) -> None:
    """``train`` and ``val`` with ``input_NUMBER.npy`` (32 x 32, uint8) and ``label_NUMBER.npy`` (as large, 255 where a
    bright figure lies)."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        (folder / part).mkdir()
        for number in range(count):
            pixels, inside = figure(rng, SIDE, square=number % 2 == 1)
            np.save(folder / part / f"input_{number:03d}.npy", pixels.mean(axis=-1).astype(np.uint8))
            np.save(folder / part / f"label_{number:03d}.npy", 255 * inside.astype(np.uint8))
