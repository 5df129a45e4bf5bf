"""Cityscapes: pictures from a car, and the kind of thing at each pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

CITY = "aachen"
COUNTS = {"train": 32, "val": 4}
SIDE = 64
ROAD, PERSON, CAR = 7, 24, 26


def write(folder: Path) -> None:
    """``leftImg8bit/PART/aachen/aachen_NUMBER_leftImg8bit.png`` (64 x 64, RGB) and
    ``gtFine/PART/aachen/aachen_NUMBER_gtFine_labelIds.png`` (a disc is a person, a square a car, the rest road)."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        for number in range(count):
            square = number % 2 == 1
            pixels, inside = figure(rng, SIDE, square)
            labels = np.where(inside, CAR if square else PERSON, ROAD).astype(np.uint8)
            name = f"{CITY}_{number:06d}"
            save(folder / "leftImg8bit" / part / CITY / f"{name}_leftImg8bit.png", pixels)
            save(folder / "gtFine" / part / CITY / f"{name}_gtFine_labelIds.png", labels)
