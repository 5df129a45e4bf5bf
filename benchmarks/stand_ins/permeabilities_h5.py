"""Permeabilities, and the pressure and fluxes of Darcy's flow through them, on a small grid (HDF5)."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

GRID = 16


def write(folder: Path) -> None:
    """``16x16/kle512_lhs10000_train.hdf5`` and ``…1000_val.hdf5``: ``input`` and ``output``."""
    rng = np.random.default_rng(0)
    places = np.linspace(0, np.pi, GRID)
    waves = np.sin(np.arange(1, 4)[:, None] * places)
    (folder / "16x16").mkdir()
    for name, count in (("kle512_lhs10000_train", 64), ("kle512_lhs1000_val", 32)):
        field = np.einsum("nij,ix,jy->nxy", rng.normal(size=(count, 3, 3)), waves, waves)
        flows = np.stack([np.tanh(field), np.gradient(field, axis=1), np.gradient(field, axis=2)], 1)
        with h5py.File(folder / "16x16" / f"{name}.hdf5", "w") as file:
            file["input"] = np.exp(field)[:, None].astype(np.float32)
            file["output"] = flows.astype(np.float32)
