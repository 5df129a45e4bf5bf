"""Faces, 98 points of each, six yes or no about it and three angles, as WFLW is prepared: `train_data/list.txt`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save


def write(folder: Path) -> None:
    """48 to train on and 16 to test, 112 x 112 pixels; a line is a path (from ``data/``) and its numbers."""
    rng = np.random.default_rng(0)
    for split, count in (("train_data", 48), ("test_data", 16)):
        lines = []
        for number in range(count):
            pixels, inside = figure(rng, 112, square=False)
            save(folder / split / "imgs" / f"{number}.png", pixels)
            down, across = np.argwhere(inside).mean(axis=0) / 112
            around = np.linspace(0, 2 * np.pi, 98)
            points = np.stack([across + 0.2 * np.cos(around), down + 0.2 * np.sin(around)], axis=1).ravel()
            numbers = [
                *(f"{value:.5f}" for value in points),
                *map(str, rng.integers(0, 2, 6)),
                *map(str, rng.normal(0, 0.3, 3)),
            ]
            lines.append(" ".join([f"./data/{split}/imgs/{number}.png", *numbers]))
        (folder / split / "list.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
