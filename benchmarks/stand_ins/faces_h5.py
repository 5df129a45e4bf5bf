"""Grey faces of seven expressions, in one HDF5 file (FER2013)."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from ._pictures import patterned

COUNTS = {"Training": 64, "PublicTest": 20, "PrivateTest": 20}


def write(folder: Path) -> None:
    """``data.h5``: ``Training_pixel``, ``Training_label`` and so for both tests, 48 x 48 pixels."""
    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.h5", "w") as file:
        for split, count in COUNTS.items():
            labels = rng.integers(0, 7, count)
            file[f"{split}_pixel"] = patterned(labels, (48 * 48,))
            file[f"{split}_label"] = labels.astype(np.int64)
