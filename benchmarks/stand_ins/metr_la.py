"""METR-LA's speeds of cars: what 207 sensors beside roads measured, every five minutes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENSORS = 207
MOMENTS = 260


def write(folder: Path) -> None:
    """``vel.csv``: a line of names, and of each moment a number for each sensor; and ``adj.npz``, as SciPy keeps a
    sparse matrix, with how near each sensor is to the next."""
    moments = np.arange(MOMENTS)[:, None]
    waves = 50 + 10 * np.sin(moments * 0.05 + np.arange(SENSORS))
    speeds = waves + np.random.default_rng(0).normal(size=waves.shape)
    names = ",".join(str(number) for number in range(SENSORS))
    np.savetxt(folder / "vel.csv", speeds, fmt="%.4f", delimiter=",", header=names, comments="")
    entries = np.arange(SENSORS)
    np.savez(
        folder / "adj.npz",
        format=np.array(b"csr"),
        shape=np.array([SENSORS, SENSORS]),
        data=np.linspace(0.2, 1, SENSORS),
        indices=(entries + 1).astype(np.int32) % SENSORS,
        indptr=np.arange(SENSORS + 1, dtype=np.int32),
    )
