"""MNIST as picture files: what a number shows is in its name, and in tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

COUNT = 40


def write(folder: Path) -> None:
    """``NUMBER_cLABEL.png``, 28 x 28, grey."""
    labels = np.arange(COUNT) % 10
    for number, pixels in enumerate(patterned(labels, (28, 28))):
        save(folder / f"tr_{number}_c{labels[number]}.png", pixels)
