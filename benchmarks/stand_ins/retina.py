"""Pictures of retinas and masks of their vessels, of the same names: `train/image`, `train/mask`, and so for `test`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save


def write(folder: Path) -> None:
    """24 to train on and 8 to test, 64 x 64 pixels."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 8)):
        for number in range(count):
            pixels, inside = figure(rng, 64, square=number % 2 == 0)
            save(folder / split / "image" / f"{number:02d}.png", pixels)
            save(folder / split / "mask" / f"{number:02d}.png", np.asarray(inside * 255, np.uint8))
