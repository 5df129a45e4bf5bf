"""SVHN: coloured digits of 32 x 32 in MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._matlab import write_mat
from ._pictures import patterned


def write(folder: Path) -> None:
    """``train_32x32.mat``, ``test_32x32.mat`` and ``extra_32x32.mat``: ``X`` (32, 32, 3, N) and ``y`` (N, 1)."""
    for seed, (split, count) in enumerate({"train": 128, "test": 64, "extra": 64}.items()):
        labels = np.random.default_rng(seed).integers(0, 10, count)
        pictures = patterned(labels, (32, 32, 3), seed).transpose(1, 2, 3, 0)
        write_mat(folder / f"{split}_32x32.mat", {"X": pictures, "y": np.where(labels == 0, 10, labels)[:, None]})
