"""Criteo's advertisements, numbered as papers on factorization machines take them: which were clicked on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROWS = 10_000
"""Projects name which of so many they train on."""
COUNTS = 13
KINDS = 26
KIND = 10


def write(folder: Path) -> None:
    """``train.txt``, a line of names and then of each advertisement 13 counts, the numbers of 26 categories and whether
    it was clicked on; and ``feature_sizes.txt``, how many numbers there are of each."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 10, (ROWS, COUNTS))
    kinds = rng.integers(0, KIND, (ROWS, KINDS))
    clicked = kinds[:, :2].sum(1) > KIND
    names = ",".join(f"column_{number}" for number in range(COUNTS + KINDS + 1))
    rows = np.column_stack((counts, kinds, clicked))
    (folder / "train.txt").write_text("\n".join([names, *(",".join(map(str, row)) for row in rows.tolist())]) + "\n")
    (folder / "feature_sizes.txt").write_text(",".join(["1"] * COUNTS + [str(KIND)] * KINDS) + "\n")
