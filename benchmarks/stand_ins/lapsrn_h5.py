"""Pictures in three sizes in HDF5, as LapSRN reads them."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from .super_resolution_h5 import waves


def write(folder: Path) -> None:
    """``lap_pry_x4_small.h5``: ``label_x4`` (count x 1 x 64 x 64), ``label_x2`` and ``data``, each half as large."""
    pictures = waves(np.random.default_rng(0), 64, 64, 1).transpose(0, 3, 1, 2).astype(np.float32) / 255
    with h5py.File(folder / "lap_pry_x4_small.h5", "w") as file:
        file["label_x4"], file["label_x2"], file["data"] = pictures, pictures[..., ::2, ::2], pictures[..., ::4, ::4]
