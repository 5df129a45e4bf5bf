"""Trials of two electrodes, as the competition on brain-computer interfaces gives them: a hand that is imagined."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TRIALS, SAMPLES, ELECTRODES = 24, 750, 2


def write(folder: Path) -> None:
    """``S4b_train.npz``, ``S4b_test.npz``, ``X11b_train.npz``, ``X11b_test.npz``: signals and labels of 1 or 2."""
    rng = np.random.default_rng(0)
    for subject in ("S4b", "X11b"):
        for part in ("train", "test"):
            label = rng.integers(1, 3, TRIALS)
            wave = np.sin(np.arange(SAMPLES)[None, :, None] * label[:, None, None] / 20)
            signal = wave + rng.normal(size=(TRIALS, SAMPLES, ELECTRODES))
            signal[0, 0, 0] = np.nan
            np.savez(folder / f"{subject}_{part}.npz", signal=signal, label=label)
