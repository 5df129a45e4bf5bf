"""The 91 pictures that networks for super-resolution learn from, cut up, and five to test them on."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

SCALE = 3
PATCHES = 64
SIDE = 33


def write(folder: Path) -> None:
    """``91-image_x3.h5`` with arrays ``lr`` and ``hr`` of as many patches (33 x 33, 0 to 255, float32), and
    ``Set5_x3.h5`` with groups ``lr`` and ``hr`` of five pictures named by number."""
    rng = np.random.default_rng(0)
    with h5py.File(folder / f"91-image_x{SCALE}.h5", "w") as file:
        sharp = _pictures(rng, PATCHES, SIDE)
        file["hr"], file["lr"] = sharp, _blurred(sharp)
    with h5py.File(folder / f"Set5_x{SCALE}.h5", "w") as file:
        for number in range(5):
            sharp = _pictures(rng, 1, 2 * SIDE)
            file[f"hr/{number}"], file[f"lr/{number}"] = sharp[0], _blurred(sharp)[0]


def _pictures(rng: np.random.Generator, count: int, side: int) -> np.ndarray:
    return np.asarray(rng.integers(0, 256, (count, side, side)), np.float32)


def _blurred(pictures: np.ndarray) -> np.ndarray:
    """Each square of SCALE x SCALE pixels as their mean."""
    count, side, _ = pictures.shape
    squares = pictures.reshape(count, side // SCALE, SCALE, side // SCALE, SCALE).mean((2, 4))
    return np.asarray(squares.repeat(SCALE, 1).repeat(SCALE, 2), np.float32)
