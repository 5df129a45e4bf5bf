"""Server Machine Dataset (SMD): what is measured of a computer, and when that was unusual."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CHANNELS = 38
TRAIN, TEST = 5800, 1200
UNUSUAL = (100, 300, 480)
LENGTH = 15


def write(folder: Path) -> None:
    """``SMD_train.npy`` and ``SMD_test.npy`` (moments x 38, float32), and ``SMD_test_label.npy`` with a one for each
    unusual moment, as detectors of anomalies read them."""
    moments = np.arange(TRAIN + TEST)[:, None]
    waves = np.sin(moments * (0.02 + 0.01 * np.arange(CHANNELS)))
    values = (waves + 0.1 * np.random.default_rng(0).normal(size=waves.shape)).astype(np.float32)
    labels = np.zeros(TEST)
    for start in UNUSUAL:
        labels[start : start + LENGTH] = 1
    np.save(folder / "SMD_train.npy", values[:TRAIN])
    np.save(folder / "SMD_test.npy", values[TRAIN:] + 2 * labels[:, None].astype(np.float32))
    np.save(folder / "SMD_test_label.npy", labels)
