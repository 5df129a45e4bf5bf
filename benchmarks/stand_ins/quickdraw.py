"""Drawings of 20 things as Quick, Draw! has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

THINGS = (
    "apple,book,bowtie,candle,cloud,cup,door,envelope,eyeglasses,guitar,hammer,hat,ice cream,leaf,scissors,star,"
    "t-shirt,pants,lightning,tree"
).split(",")
COUNT = 10


def write(folder: Path) -> None:
    """``full_numpy_bitmap_THING.npy`` (10 x 784, uint8)."""
    rng = np.random.default_rng(0)
    for thing in THINGS:
        strokes = np.kron(rng.integers(0, 2, (7, 7)), np.ones((4, 4))) * 220
        drawings = (strokes + rng.integers(0, 35, (COUNT, 28, 28))).astype(np.uint8)
        np.save(folder / f"full_numpy_bitmap_{thing}.npy", drawings.reshape(COUNT, -1))
