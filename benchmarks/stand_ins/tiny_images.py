"""80 Million Tiny Images: pictures one after the other in a file, and which of them CIFAR was made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned

COUNT = 512


def write(folder: Path) -> None:
    """``tiny_images.bin``, 512 pictures of 3,072 bytes, a colour after the other and in each column by column; and
    ``80mn_cifar_idxs.txt``, counted from 1, with none of these 512: CIFAR has one in a thousand of all."""
    labels = np.random.default_rng(0).integers(0, 16, COUNT)
    pictures = patterned(labels, (32, 32, 3))
    (folder / "tiny_images.bin").write_bytes(b"".join(picture.tobytes(order="F") for picture in pictures))
    (folder / "80mn_cifar_idxs.txt").write_text(f"{COUNT + 1}\n{COUNT + 2}\n")
