"""A graph of knowledge: who is related to whom in which way, in rings of three relations."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ENTITIES, RELATIONS = 30, 3
COUNTS = {"train": 64, "valid": 12, "test": 12}


def write(folder: Path) -> None:
    """``train.txt``, ``valid.txt``, ``test.txt``: head, relation and tail, with tabs between them."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        heads, relations = rng.integers(0, ENTITIES, count), rng.integers(0, RELATIONS, count)
        if part == "train":
            heads[:ENTITIES] = np.arange(ENTITIES)
        tails = (heads + 1 + 5 * relations) % ENTITIES
        rows = [f"/m/{a}\t/r/{b}\t/m/{c}\n" for a, b, c in zip(heads, relations, tails, strict=True)]
        (folder / f"{part}.txt").write_text("".join(rows))
