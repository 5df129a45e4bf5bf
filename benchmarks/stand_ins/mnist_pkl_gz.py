"""MNIST as one pickled file of rows, as the tutorial "What is torch.nn really?" reads it."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np

from ._pictures import patterned

COUNTS = (256, 64, 64)


def write(folder: Path) -> None:
    """``mnist.pkl.gz``: (rows of 784 numbers from 0 to 1, digits) for training, validation and test."""
    rng = np.random.default_rng(0)
    parts = []
    for seed, count in enumerate(COUNTS):
        digits = rng.integers(0, 10, count)
        parts.append((patterned(digits, (784,), seed).astype(np.float32) / 255, digits))
    with gzip.GzipFile(folder / "mnist.pkl.gz", "wb", mtime=0) as file:
        pickle.dump(tuple(parts), file)
