"""Pictures with a list of their paths and labels, a line each, as tutorials on a data set of one's own want them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

COUNTS = {"train": 96, "valid": 32}


def write(folder: Path) -> None:
    """``train.txt`` and ``valid.txt`` (``../../Data/PART/0000.png LABEL``), ten classes, 32 x 32 pixels."""
    for seed, (part, count) in enumerate(COUNTS.items()):
        labels = np.arange(count) % 10
        lines = []
        for number, (label, pixels) in enumerate(zip(labels, patterned(labels, (32, 32, 3), seed), strict=True)):
            save(folder / part / f"{number:04d}.png", pixels)
            lines.append(f"../../Data/{part}/{number:04d}.png {label}")
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
