"""Auto MPG of the UCI repository: how far cars go on a gallon."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CARS = 120


def write(folder: Path) -> None:
    """``auto-mpg.data``: eight numbers between blanks, a tab and the car's name; ``?`` where one is not known."""
    rng = np.random.default_rng(0)
    lines = []
    for car in range(CARS):
        cylinders = int(rng.choice((4, 6, 8)))
        weight = 500.0 * cylinders + float(rng.normal(scale=200))
        power = f"{20 * cylinders:.1f}" if car % 40 else "?"
        miles = 45 - weight / 150 + float(rng.normal())
        numbers = f"{miles:.1f} {cylinders} {40.0 * cylinders} {power} {weight:.0f}. {15 + car % 7:.1f}"
        lines.append(f'{numbers} {70 + car % 13} {1 + car % 3}\t"car {car}"')
    (folder / "auto-mpg.data").write_text("\n".join(lines) + "\n")
