"""Waves on a string from various beginnings, as a DeepONet learns them: one file of samples for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BEGINNINGS = 10
PLACES, TIMES, SENSORS = 20, 12, 10


def write(folder: Path) -> None:
    """``NUMBER.npy``, each an array of one record: places ``x``, times ``t``, heights ``y`` (places by times) and
    what ``u`` the sensors see at the beginning."""
    fields = [("x", "f8", PLACES), ("t", "f8", TIMES), ("y", "f8", (PLACES, TIMES)), ("u", "f8", SENSORS)]
    x, t = np.linspace(-np.pi, np.pi, PLACES), np.linspace(0, 1, TIMES)
    for number, pitch in enumerate(np.linspace(0.5, 2, BEGINNINGS)):
        record = np.zeros(1, fields)
        record["x"], record["t"] = x, t
        record["y"] = np.sin(pitch * x)[:, None] * np.cos(0.5 * pitch * t)
        record["u"] = np.sin(pitch * np.linspace(-np.pi, np.pi, SENSORS))
        np.save(folder / f"{number}.npy", record)
