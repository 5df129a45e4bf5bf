"""Pictures of one bright figure, of which a mask says where it is."""

from __future__ import annotations

import numpy as np


def figure(rng: np.random.Generator, side: int, square: bool) -> tuple[np.ndarray, np.ndarray]:
    """A disc or a square somewhere on a smooth gradient (side x side x 3, uint8), and where it is (side x side)."""
    y, x = np.mgrid[0:side, 0:side] / side
    pixels = 60 + 80 * (x[..., None] * rng.random(3) + y[..., None] * rng.random(3))
    (across, down), half = rng.uniform(0.3, 0.7, 2), rng.uniform(0.1, 0.25)
    right, below = abs(x - across), abs(y - down)
    inside = np.asarray(np.maximum(right, below) < half if square else np.hypot(right, below) < half)
    pixels[inside] = 180 + 70 * rng.random(3)
    return pixels.astype(np.uint8), inside
