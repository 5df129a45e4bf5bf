"""Points on the surfaces of things of forty kinds, with a number for each kind, in HDF5 files (ModelNet40)."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

COUNTS = {"train": 48, "test": 16}
KINDS, POINTS = 40, 256


def write(folder: Path) -> None:
    """``ply_data_train0.h5`` and ``ply_data_test0.h5``: ``data`` and ``label``."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        kinds = rng.integers(0, KINDS, size=(count, 1))
        points = rng.normal(size=(count, POINTS, 3))
        points /= np.linalg.norm(points, axis=2, keepdims=True)
        points[:, :, 2] *= kinds / KINDS
        with h5py.File(folder / f"ply_data_{split}0.h5", "w") as file:
            file["data"] = points.astype(np.float32)
            file["label"] = kinds.astype(np.uint8)
