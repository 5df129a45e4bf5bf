"""Pictures that can be learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def patterned(labels: np.ndarray, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """A pattern for each label under noise: uint8, (len(labels), *shape)."""
    rng = np.random.default_rng(seed)
    patterns = np.random.default_rng(7).integers(0, 256, (int(labels.max(initial=0)) + 1, *shape))
    noise = rng.integers(0, 256, (len(labels), *shape))
    return np.asarray(0.6 * patterns[labels] + 0.4 * noise, np.uint8)


def save(path: Path, pixels: np.ndarray) -> None:
    """Write one picture, (height, width) or (height, width, 3), in the format that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def save_all(folder: Path, count: int, size: tuple[int, int], suffix: str = "jpg", seed: int = 0) -> list[Path]:
    """Write ``count`` coloured pictures of ``size`` (width, height) named by number, and return where they are."""
    labels = np.random.default_rng(seed).integers(0, 4, count)
    paths = [folder / f"{number + 1:06d}.{suffix}" for number in range(count)]
    for path, pixels in zip(paths, patterned(labels, (size[1], size[0], 3), seed), strict=True):
        save(path, pixels)
    return paths
