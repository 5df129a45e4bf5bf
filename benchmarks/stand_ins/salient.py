"""Pictures with one thing that stands out, and where it is, named as DUTS is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

COUNT = 24
SIDE = 64


def write(folder: Path) -> None:
    """``im_aug/NAME.jpg`` and ``gt_aug/NAME.png`` (64 x 64, white where the figure is)."""
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        pixels, inside = figure(rng, SIDE, square=number % 2 == 1)
        save(folder / "im_aug" / f"ILSVRC2012_{number:08}.jpg", pixels)
        save(folder / "gt_aug" / f"ILSVRC2012_{number:08}.png", 255 * inside.astype(np.uint8))
