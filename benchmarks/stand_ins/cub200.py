"""CUB-200-2011: pictures of birds, a folder for each kind, as metric learning reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

CLASSES = 8
EACH = 8


def write(folder: Path) -> None:
    """``images/001.Bird/Bird_0001.jpg`` and so on: 64 x 64 pixels."""
    for label in range(CLASSES):
        pictures = patterned(np.full(EACH, label), (64, 64, 3), label)
        for number, pixels in enumerate(pictures, 1):
            save(folder / "images" / f"{label + 1:03d}.Bird{label}" / f"Bird{label}_{number:04d}.jpg", pixels)
