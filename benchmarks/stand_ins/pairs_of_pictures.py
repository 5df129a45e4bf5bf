"""Pairs of pictures side by side in one file, as Pix2Pix, BicycleGAN and DiscoGAN read facades and edges2shoes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

SIDE = 64
COUNTS = {"train": 32, "val": 16, "test": 8}


def write(folder: Path) -> None:
    """``train``, ``val`` and ``test`` with ``NUMBER.jpg``: an outline on the left, the picture on the right."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        labels = np.random.default_rng(seed).integers(0, 4, count)
        coloured = patterned(labels, (SIDE, SIDE, 3), seed)
        outlines = np.where(coloured.mean(axis=-1, keepdims=True) > 127, 255, 0).astype(np.uint8).repeat(3, axis=-1)
        for number, pixels in enumerate(np.concatenate((outlines, coloured), axis=2), 1):
            save(folder / split / f"{number}.jpg", pixels)
