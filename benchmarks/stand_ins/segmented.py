"""Pictures and a black and white mask for each, as tutorials on U-Net want them: Carvana, LGG-MRI and their like."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

COUNT = 32
SIDE = 64


def write(folder: Path) -> None:
    """``images/NUMBER.png`` (64 x 64, RGB) and ``masks/NUMBER.png`` (as large, white where a bright square lies)."""
    rng = np.random.default_rng(0)
    for number in range(1, COUNT + 1):
        pixels = rng.integers(0, 100, (SIDE, SIDE, 3), dtype=np.uint8)
        mask = np.zeros((SIDE, SIDE), np.uint8)
        top, left = rng.integers(8, 32, 2)
        pixels[top : top + 24, left : left + 24] += 120
        mask[top : top + 24, left : left + 24] = 255
        save(folder / "images" / f"{number:04d}.png", pixels)
        save(folder / "masks" / f"{number:04d}.png", np.stack([mask] * 3, axis=-1))
