"""BSDS300, the Berkeley segmentation data set: pictures of which scripts learn to enlarge small ones."""

from __future__ import annotations

from pathlib import Path

from ._pictures import save_all

COUNTS = {"train": 32, "test": 16}
SIDE = 96


def write(folder: Path) -> None:
    """``images/train`` and ``images/test`` with ``NUMBER.jpg``."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        save_all(folder / "images" / split, count, (SIDE, SIDE), seed=seed)
