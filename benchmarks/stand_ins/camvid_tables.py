"""CamVid as tables of pictures and of arrays of classes, and the colours of its classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

SIDE = 64
COUNTS = {"train": 24, "val": 6}
COLORS = {"Void": (0, 0, 0), "Road": (128, 64, 128)} | {f"Class{i}": (20 * i, 255 - 20 * i, 9) for i in range(10)}


def write(folder: Path) -> None:
    """``PART.csv``, which calls this folder CamVid, ``PART_NUMBER.png`` and ``.npy``, and ``class_dict.csv``."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        rows = ["img,label"]
        for number in range(count):
            pixels, mask = figure(rng, SIDE, number % 2 == 0)
            save(folder / f"{part}_{number}.png", pixels)
            np.save(folder / f"{part}_{number}.npy", mask.astype(np.int64))
            rows.append(f"CamVid/{part}_{number}.png,CamVid/{part}_{number}.npy")
        (folder / f"{part}.csv").write_text("\n".join(rows) + "\n")
    colors = [f"{name},{r},{g},{b},{int(name != 'Void')}" for name, (r, g, b) in COLORS.items()]
    (folder / "class_dict.csv").write_text("\n".join(["name,r,g,b,class_11", *colors]) + "\n")
