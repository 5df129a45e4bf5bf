"""Measurements in intensive care, most of them missing, as models that fill them in have prepared them (CSDI)."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

PATIENTS, HOURS, ATTRIBUTES = 160, 48, 35


def write(folder: Path) -> None:
    """``physio_missing0.1_seed1.pk``: values, where there are some, and where a model is shown them."""
    rng = np.random.default_rng(0)
    hours = np.arange(HOURS)[None, :, None] / HOURS
    values = np.sin(2 * np.pi * (hours + rng.random((PATIENTS, 1, ATTRIBUTES))))
    observed = (rng.random(values.shape) < 0.3).astype("float32")
    shown = observed * (rng.random(values.shape) < 0.9)
    content = [values * observed, observed, shown.astype("float32")]
    (folder / "physio_missing0.1_seed1.pk").write_bytes(pickle.dumps(content))
