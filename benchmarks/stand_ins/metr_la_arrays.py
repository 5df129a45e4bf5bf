"""METR-LA's speeds of cars in arrays, as a spatio-temporal network finds them unpacked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENSORS, MOMENTS = 12, 200


def write(folder: Path) -> None:
    """``adj_mat.npy``, sensors x sensors, and ``node_values.npy``, moments x sensors x 2, both float32."""
    moments = np.arange(MOMENTS)[:, None]
    waves = np.sin(moments * 0.05 + np.arange(SENSORS)) + 0.1 * np.random.default_rng(0).normal(size=(MOMENTS, SENSORS))
    hours = np.broadcast_to(moments % 24 / 24, waves.shape)
    np.save(folder / "node_values.npy", np.stack([50 + 10 * waves, hours], axis=2).astype(np.float32))
    near = np.abs(np.subtract.outer(np.arange(SENSORS), np.arange(SENSORS)))
    np.save(folder / "adj_mat.npy", (np.exp(-near) * (near > 0)).astype(np.float32))
