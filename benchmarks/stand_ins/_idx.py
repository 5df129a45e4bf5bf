"""Pictures and labels in the files of MNIST."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from ._pictures import patterned


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write bytes of any number of axes in the format that begins with the number of axes and their lengths."""
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.tobytes())


def write_digits(folder: Path, seed: int) -> None:
    """``raw/train-images-idx3-ubyte`` and its three relatives, as torchvision unpacks them."""
    (folder / "raw").mkdir()
    for split, count in (("train", 256), ("t10k", 64)):
        labels = np.random.default_rng(seed + count).integers(0, 10, count).astype(np.uint8)
        write_idx(folder / "raw" / f"{split}-images-idx3-ubyte", patterned(labels, (28, 28), seed + count))
        write_idx(folder / "raw" / f"{split}-labels-idx1-ubyte", labels)
