"""Traffic at a few sensors, as work on forecasts in graphs reads PeMSD4."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENSORS, MOMENTS = 6, 240


def write(folder: Path) -> None:
    """``pems04.npz``: ``data`` of moments x sensors x 3 (flow, occupancy, speed)."""
    rng = np.random.default_rng(0)
    phases = rng.uniform(0, 2 * np.pi, SENSORS)
    waves = np.sin(np.arange(MOMENTS)[:, None] / 12 + phases)
    flow = 200 + 100 * waves + rng.normal(0, 5, waves.shape)
    np.savez(folder / "pems04.npz", data=np.stack([flow, waves / 10 + 0.2, 60 - 10 * waves], -1))
