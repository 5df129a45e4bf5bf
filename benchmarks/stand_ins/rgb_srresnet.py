"""Coloured patches for super-resolution, small and four times as large, in the file that SRResNet's projects read."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from ._pictures import patterned

SCALE = 4
SIDE = 12
COUNT = 32


def write(folder: Path) -> None:
    """``rgb_srresnet_x4.h5`` with arrays ``data`` (32 x 3 x 12 x 12) and ``label`` (32 x 3 x 48 x 48), from 0 to 1."""
    labels = np.random.default_rng(0).integers(0, 4, COUNT)
    large = np.asarray(patterned(labels, (3, SIDE * SCALE, SIDE * SCALE)), np.float32) / 255
    small = large.reshape(COUNT, 3, SIDE, SCALE, SIDE, SCALE).mean((3, 5))
    with h5py.File(folder / f"rgb_srresnet_x{SCALE}.h5", "w") as file:
        file["data"], file["label"] = small, large
