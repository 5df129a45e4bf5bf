"""Advertisements that were clicked on or not, every field an index, as DeepFM reads what it made of Criteo's table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FIELDS, VALUES = 39, 6
COUNTS = {"train": 75, "test": 21}


def write(folder: Path) -> None:
    """``category_emb.csv``: field, value, index; ``tiny_SPLIT_input.csv``: the answer, then an index for each field."""
    rng = np.random.default_rng(0)
    values = [f"{field},{value},{value}\n" for field in range(FIELDS) for value in range(VALUES)]
    (folder / "category_emb.csv").write_text("".join(values))
    for split, count in COUNTS.items():
        rows = rng.integers(0, VALUES, (count, FIELDS))
        answers = (rows[:, 0] + rng.integers(0, 3, count) > VALUES // 2).astype(int)
        lines = [",".join(map(str, [answer, *row])) + "\n" for answer, row in zip(answers, rows, strict=True)]
        (folder / f"tiny_{split}_input.csv").write_text("".join(lines))
