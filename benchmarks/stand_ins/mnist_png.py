"""MNIST as pictures: a folder for each digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save


def write(folder: Path) -> None:
    """``train/DIGIT/NUMBER.png`` and ``test/DIGIT/NUMBER.png``, 28 x 28 and grey."""
    for seed, (part, count) in enumerate({"train": 64, "test": 32}.items()):
        digits = np.arange(count) % 10
        for number, (digit, pixels) in enumerate(zip(digits, patterned(digits, (28, 28), seed), strict=True)):
            save(folder / part / str(digit) / f"{number:05d}.png", pixels)
