"""Pictures in a folder for each person, and a list of them with the person's number."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

COUNT, PERSONS = 48, 8


def write(folder: Path) -> None:
    """``faces.txt``: ``1/0001.jpg 1`` for each of 48 pictures of 8 persons, 96 x 112 pixels."""
    labels = np.random.default_rng(0).integers(0, PERSONS, COUNT)
    names = [f"{label}/{number:04d}.jpg" for number, label in enumerate(labels)]
    for name, pixels in zip(names, patterned(labels, (112, 96, 3)), strict=True):
        save(folder / name, pixels)
    (folder / "faces.txt").write_text("".join(f"{name} {name.split('/')[0]}\n" for name in names))
