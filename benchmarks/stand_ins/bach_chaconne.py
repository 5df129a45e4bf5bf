"""Bach's chaconne as pytorch-wavenet keeps music: here two waves, in 256 steps that are finer where it is quiet."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LENGTH = 20_000
STEPS = 256


def write(folder: Path) -> None:
    """``dataset.npz`` with ``arr_0``, the samples of the only piece (uint8)."""
    time = np.arange(LENGTH) / 16_000
    waves = 0.5 * np.sin(440 * 2 * np.pi * time) + 0.4 * np.sin(660 * 2 * np.pi * time)
    sound = np.clip(waves + np.random.default_rng(0).normal(scale=0.01, size=LENGTH), -1, 1)
    loudness = np.sign(sound) * np.log1p(STEPS * np.abs(sound)) / np.log1p(STEPS)
    np.savez(folder / "dataset.npz", np.asarray((loudness + 1) / 2 * (STEPS - 1), np.uint8))
