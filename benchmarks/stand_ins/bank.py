"""A table of numbers and categories with an answer in two classes, as a data set of OpenML comes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROWS, NUMBERS, CATEGORIES = 300, 4, 2


def write(folder: Path) -> None:
    """``bank.csv``: numbers first, then categories, then ``target``."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(ROWS, NUMBERS))
    categories = rng.choice(["low", "middle", "high"], (ROWS, CATEGORIES))
    answers = np.where(numbers[:, 0] + (categories[:, 0] == "high") > 0.3, "yes", "no")
    lines = [",".join([*(f"n{k}" for k in range(NUMBERS)), *(f"c{k}" for k in range(CATEGORIES)), "target"])]
    for row in range(ROWS):
        lines.append(",".join([*(f"{number:.4f}" for number in numbers[row]), *categories[row], answers[row]]))
    (folder / "bank.csv").write_text("\n".join(lines) + "\n")
