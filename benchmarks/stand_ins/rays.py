"""Rays of a small scene: where each starts, where it goes and the colour it sees, for radiance fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SIDE = 8
VIEWS = {"training_data": 4, "testing_data": 2}


def write(folder: Path) -> None:
    """``training_data.pkl`` and ``testing_data.pkl``: arrays of origins, directions and colours, nine numbers a ray."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, views in VIEWS.items():
        directions = rng.normal(size=(views * SIDE * SIDE, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        colours = 0.5 + 0.5 * directions
        rays = np.concatenate((-4 * directions, directions, colours), axis=1).astype(np.float32)
        rays.dump(folder / f"{name}.pkl")
