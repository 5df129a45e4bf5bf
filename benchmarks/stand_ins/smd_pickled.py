"""Server Machine Dataset (SMD), one machine of it, pickled as OmniAnomaly and its like read it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from .smd import CHANNELS

TRAIN, TEST = 260, 160
UNUSUAL = slice(100, 115)


def write(folder: Path) -> None:
    """``machine-1-1_train.pkl``, ``machine-1-1_test.pkl`` and ``machine-1-1_test_label.pkl``: float32 arrays."""
    moments = np.arange(TRAIN + TEST)[:, None]
    waves = np.sin(moments * (0.02 + 0.01 * np.arange(CHANNELS)))
    values = (waves + 0.1 * np.random.default_rng(0).normal(size=waves.shape)).astype(np.float32)
    labels = np.zeros(TEST, np.float32)
    labels[UNUSUAL] = 1
    tables = {"train": values[:TRAIN], "test": values[TRAIN:] + 2 * labels[:, None], "test_label": labels}
    for name, table in tables.items():
        (folder / f"machine-1-1_{name}.pkl").write_bytes(pickle.dumps(table))
