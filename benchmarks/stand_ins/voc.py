"""VOC2012 for segmentation: a coloured square on noise, and where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

NAME = "VOCdevkit"
COUNT = 64


def write(folder: Path) -> None:
    """``VOC2012/JPEGImages``, ``SegmentationClass`` and ``ImageSets/Segmentation``: 96 x 96 pixels, 20 classes."""
    base = folder / "VOC2012"
    (base / "Annotations").mkdir(parents=True)
    rng = np.random.default_rng(3)
    names = [f"2007_{number:06d}" for number in range(COUNT)]
    for name in names:
        mask = np.zeros((96, 96), np.uint8)
        label, x, y = rng.integers(1, 21), *rng.integers(0, 48, 2)
        mask[y : y + 40, x : x + 40] = label
        noise = rng.integers(0, 64, (96, 96, 3)).astype(np.uint8)
        save(base / "JPEGImages" / f"{name}.jpg", noise + mask[..., None] * np.uint8(8))
        save(base / "SegmentationClass" / f"{name}.png", mask)
    lists = base / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    cut = COUNT * 4 // 5
    for split, part in (("train", names[:cut]), ("val", names[cut:]), ("trainval", names)):
        (lists / f"{split}.txt").write_text("\n".join(part) + "\n")
