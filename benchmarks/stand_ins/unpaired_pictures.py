"""Two collections of pictures without pairs, as CycleGAN and UNIT read monet2photo and apple2orange."""

from __future__ import annotations

from pathlib import Path

from ._pictures import save_all

SIDE = 64
COUNTS = {"train": 32, "test": 16}


def write(folder: Path) -> None:
    """``train/A``, ``train/B``, ``test/A`` and ``test/B`` with ``NUMBER.jpg``."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        for collection in ("A", "B"):
            save_all(folder / split / collection, count, (SIDE, SIDE), seed=seed + 10 * (collection == "B"))
