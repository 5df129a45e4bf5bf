"""Binarized MNIST as MADE reads it: rows of zeros and ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned

ROWS = {"train_data": 400, "valid_data": 200, "test_data": 100}


def write(folder: Path) -> None:
    """``binarized_mnist.npz``: three arrays of float32."""
    arrays: dict[str, np.ndarray] = {}
    for seed, (name, rows) in enumerate(ROWS.items()):
        pictures = np.stack(list(patterned(np.arange(rows) % 10, (28, 28), seed)))
        arrays[name] = (pictures.reshape(rows, -1) > 127).astype("float32")
    np.savez(folder / "binarized_mnist.npz", allow_pickle=True, **arrays)
