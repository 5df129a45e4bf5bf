"""MNIST-M, digits on coloured grounds, as PyTorch-GAN's own data set unpacks it."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from ._pictures import patterned

COUNTS = {b"train": 128, b"test": 64}


def write(folder: Path) -> None:
    """``raw/keras_mnistm.pkl``, and something in ``processed``, which has to be there."""
    pixels = {
        split: patterned(np.random.default_rng(seed).integers(0, 10, count), (28, 28, 3), seed)
        for seed, (split, count) in enumerate(COUNTS.items())
    }
    for name in ("raw", "processed"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "raw" / "keras_mnistm.pkl").write_bytes(pickle.dumps(pixels))
    (folder / "processed" / "empty.txt").write_text("")
