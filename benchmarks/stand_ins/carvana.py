"""Carvana: pictures of cars, each with a mask of where the car is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

COUNT = 24
WIDTH, HEIGHT = 96, 64


def write(folder: Path) -> None:
    """``imgs/NUMBER.jpg`` and ``masks/NUMBER_mask.gif``: a bright box on a dark ground."""
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        top, left = int(rng.integers(0, HEIGHT // 2)), int(rng.integers(0, WIDTH // 2))
        mask[top : top + HEIGHT // 2, left : left + WIDTH // 2] = 255
        noise = rng.integers(0, 80, (HEIGHT, WIDTH, 3))
        save(folder / "imgs" / f"{number:03d}.jpg", np.asarray(noise + (mask[..., None] > 0) * 120, np.uint8))
        save(folder / "masks" / f"{number:03d}_mask.gif", mask)
