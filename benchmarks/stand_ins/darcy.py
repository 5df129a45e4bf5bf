"""Permeabilities and pressures on a grid, as neural operators read them (Darcy's flow)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._matlab import write_mat

PAIRS, GRID = 48, 21


def write(folder: Path) -> None:
    """``piececonst_r421_N1024_smooth1.mat`` and ``…2.mat``: ``coeff`` and ``sol``."""
    rng = np.random.default_rng(0)
    places = np.linspace(0, np.pi, GRID)
    for number in (1, 2):
        weights = rng.normal(size=(PAIRS, 3, 3))
        waves = np.sin(np.arange(1, 4)[:, None] * places)
        field = np.einsum("nij,ix,jy->nxy", weights, waves, waves)
        content = {
            "coeff": np.where(field > 0, 12.0, 3.0),
            "sol": np.tanh(field) / 100 + 0.01 * rng.random((GRID, GRID)),
        }
        write_mat(folder / f"piececonst_r421_N1024_smooth{number}.mat", content)
