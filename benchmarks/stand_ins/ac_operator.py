"""Pairs of functions for neural operators: what an Allen-Cahn equation begins with, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PAIRS, POINTS, WAVES = 240, 64, 4


def write(folder: Path) -> None:
    """``AC_data_input.npy`` (pairs x points x place and value) and ``AC_data_output.npy`` (pairs x points)."""
    places = np.linspace(-1, 1, POINTS)
    waves = np.sin(np.arange(1, WAVES + 1)[:, None] * np.pi * places)
    begun = np.random.default_rng(0).normal(size=(PAIRS, WAVES)) @ waves
    np.save(folder / "AC_data_input.npy", np.stack([np.broadcast_to(places, begun.shape), begun], -1))
    np.save(folder / "AC_data_output.npy", np.tanh(begun))
