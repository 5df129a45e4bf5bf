"""Clicks of visitors of a shop, visit by visit, as recommenders of the next item read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ITEMS = 60
COUNTS = {"train": 120, "valid": 48}


def write(folder: Path) -> None:
    """``train.txt`` and ``valid.txt``: ``SessionID,Time,ItemID``, a click a line."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng(seed)
        rows = ["SessionID,Time,ItemID"]
        for number in range(count):
            rows += [f"{number},{1000 * number + time},{item + 100}" for time, item in enumerate(session(rng))]
        (folder / f"{split}.txt").write_text("\n".join(rows) + "\n")


def session(rng: np.random.Generator) -> list[int]:
    """The items, from 0, that one visitor clicked: three to nine, each of which suggests the next."""
    steps = rng.integers(1, 4, int(rng.integers(2, 9)))
    return [int(item) for item in np.cumsum([rng.integers(ITEMS), *steps]) % ITEMS]
