"""Clicks and purchases in a search engine, a row a result shown: categories, numbers and the two answers (AliExpress)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROWS = {"train": 256, "test": 128}
CATEGORIES, NUMBERS, VALUES = 16, 8, 6


def write(folder: Path) -> None:
    """``AliExpress_NL/train.csv`` and ``test.csv``: the number of the row, 16 categories, numbers, click and purchase."""
    rng = np.random.default_rng(0)
    (folder / "AliExpress_NL").mkdir()
    names = [f"categorical_{number}" for number in range(1, CATEGORIES + 1)]
    names += [f"numerical_{number}" for number in range(1, NUMBERS + 1)]
    for part, rows in ROWS.items():
        categories = rng.integers(0, VALUES, (rows, CATEGORIES))
        numbers = rng.random((rows, NUMBERS))
        score = numbers[:, 0] + (categories[:, 0] > VALUES / 2)
        answers = score > 1, score > 1.5
        lines = [",".join(["", *names, "click", "conversion"])]
        for row in range(rows):
            cells = [
                *categories[row],
                *(f"{number:.4f}" for number in numbers[row]),
                *(int(part[row]) for part in answers),
            ]
            lines.append(",".join(map(str, [row, *cells])))
        (folder / "AliExpress_NL" / f"{part}.csv").write_text("\n".join(lines) + "\n")
