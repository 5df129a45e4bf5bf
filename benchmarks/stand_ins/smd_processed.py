"""Measurements of a server with their anomalies, between 0 and 1, as TranAD and what it is compared with read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MOMENTS, MEASURED = 200, 6


def write(folder: Path) -> None:
    """``SMD/machine-1-1_train.npy``, ``…_test.npy`` and ``…_labels.npy``."""
    rng = np.random.default_rng(0)
    (folder / "SMD").mkdir()
    times = np.arange(MOMENTS)[:, None] / 20
    for part in ("train", "test"):
        values = 0.5 + 0.3 * np.sin(times + np.arange(MEASURED)) + 0.05 * rng.normal(size=(MOMENTS, MEASURED))
        odd = np.zeros((MOMENTS, MEASURED))
        if part == "test":
            odd[80:100, 2] = 1
            np.save(folder / "SMD" / "machine-1-1_labels.npy", odd)
        np.save(folder / "SMD" / f"machine-1-1_{part}.npy", np.clip(values + odd, 0, 1))
