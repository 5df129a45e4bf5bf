"""MNIST in black and white as one HDF5 file, as an autoencoder of binary pixels reads it."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from ._pictures import patterned

COUNTS = {"train": 160, "valid": 48, "test": 48}


def write(folder: Path) -> None:
    """``binary_mnist.h5`` with ``train``, ``valid`` and ``test``: pictures x 784, zeros and ones (float32)."""
    with h5py.File(folder / "binary_mnist.h5", "w") as file:
        for seed, (split, count) in enumerate(COUNTS.items()):
            labels = np.random.default_rng(seed).integers(0, 10, count)
            file[split] = (patterned(labels, (784,), seed) > 127).astype(np.float32)
