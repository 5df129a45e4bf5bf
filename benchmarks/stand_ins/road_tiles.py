"""Pictures from above and masks of their roads: `train/123_sat.jpg` and `train/123_mask.png` (DeepGlobe)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save


def write(folder: Path) -> None:
    """24 to train on, 64 x 64 pixels."""
    rng = np.random.default_rng(0)
    for number in range(24):
        pixels, inside = figure(rng, 64, square=number % 2 == 0)
        save(folder / "train" / f"{number:03d}_sat.jpg", pixels)
        save(folder / "train" / f"{number:03d}_mask.png", np.asarray(inside * 255, np.uint8))
