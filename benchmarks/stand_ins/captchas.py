"""Pictures of four letters, named by them: `train/AB12_0001.png`, `test/...`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def write(folder: Path) -> None:
    """96 to train on and 8 to test, 160 x 60 pixels: a shade of grey for each letter."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 96), ("test", 8)):
        for number in range(count):
            letters = rng.integers(0, len(LETTERS), 4)
            pixels = rng.integers(0, 40, (60, 160)) + np.repeat(letters * 6, 40)
            text = "".join(LETTERS[each] for each in letters)
            save(folder / split / f"{text}_{number:04d}.png", pixels.astype(np.uint8))
