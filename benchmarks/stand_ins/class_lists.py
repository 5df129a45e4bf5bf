"""Pictures listed with their classes, ``CLASS;PATH`` a line: `links = { "listed" = "class_lists" }`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

CLASSES = ("cat", "dog")
COUNTS = {"train": 64, "test": 32}


def write(folder: Path) -> None:
    """``train.txt``, ``test.txt``, ``classes.txt`` and the pictures, as they are seen through the link ``listed``."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        labels = np.arange(count) % len(CLASSES)
        lines = []
        for number, pixels in enumerate(patterned(labels, (64, 64, 3), seed)):
            name = f"{split}/{CLASSES[labels[number]]}/{number}.jpg"
            save(folder / name, pixels)
            lines.append(f"{labels[number]};listed/{name}\n")
        (folder / f"{split}.txt").write_text("".join(lines))
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES))
