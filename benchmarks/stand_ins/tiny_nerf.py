"""A ball seen from all around, in the one file that tutorials on NeRF read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

VIEWS = 104
SIDE = 20
FAR = 4.0


def write(folder: Path) -> None:
    """``tiny_nerf_data.npz`` with ``images`` (104 x 20 x 20 x 3), ``poses`` (from the camera to the world,
    104 x 4 x 4) and ``focal``, all float32."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    images, poses = np.zeros((VIEWS, SIDE, SIDE, 3), np.float32), np.zeros((VIEWS, 4, 4), np.float32)
    for number, angle in enumerate(2 * np.pi * np.arange(VIEWS) / VIEWS):
        cos, sin = np.cos(angle), np.sin(angle)
        poses[number] = [[cos, 0, sin, FAR * sin], [0, 1, 0, 0], [-sin, 0, cos, FAR * cos], [0, 0, 0, 1]]
        images[number, np.hypot(x - SIDE / 2 - 3 * cos, y - SIDE / 2) < 4] = (0.9, 0.4 + 0.3 * cos, 0.2)
    np.savez(folder / "tiny_nerf_data.npz", images=images, poses=poses, focal=np.array(25, np.float32))
