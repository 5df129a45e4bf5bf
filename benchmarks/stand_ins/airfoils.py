"""Flows around airfoils: what flows in and the mask, then the pressure and velocities, a file each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COUNT, GRID = 30, 128


def write(folder: Path) -> None:
    """``NUMBER.npz``, which hold ``a``, (6, 128, 128)."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:GRID, 0:GRID] / GRID - 0.5
    for number in range(COUNT):
        width, height = rng.uniform(0.1, 0.3, 2)
        mask = (x / width) ** 2 + (y / height) ** 2 < 1
        inflow = rng.uniform((30, -20), (90, 20))
        fields = [np.where(mask, 0, component) for component in inflow]
        pressure = np.where(mask, 0, 50 * np.sin(9 * x * inflow[0] / 60) * np.cos(7 * y))
        np.savez_compressed(folder / f"{number:03d}.npz", a=np.stack([*fields, mask, pressure, *fields]))
