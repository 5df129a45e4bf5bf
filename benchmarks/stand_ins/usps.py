"""USPS, written digits, in the packed file of CoGAN that work on domain adaptation reads."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np

from ._pictures import patterned

COUNTS = {"train": 256, "test": 64}


def write(folder: Path) -> None:
    """``usps_28x28.pkl``: for training and test pictures (count x 1 x 28 x 28, float32, 0 to 1) and labels."""
    parts = []
    for seed, count in enumerate(COUNTS.values()):
        labels = np.random.default_rng(seed).integers(0, 10, count)
        parts.append([np.asarray(patterned(labels, (1, 28, 28), seed), np.float32) / 255, labels])
    (folder / "usps_28x28.pkl").write_bytes(gzip.compress(pickle.dumps(parts), mtime=0))
