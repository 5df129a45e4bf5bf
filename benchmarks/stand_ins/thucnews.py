"""THUCNews: headlines of ten topics, one a line with its number after a tab."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TOPICS = (
    "finance",
    "realty",
    "stocks",
    "education",
    "science",
    "society",
    "politics",
    "sports",
    "game",
    "entertainment",
)
LINES = {"train": 96, "dev": 32, "test": 32}
FIRST = 0x4E00


def write(folder: Path) -> None:
    """``train.txt``, ``dev.txt``, ``test.txt`` and ``class.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate(LINES.items()):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, len(TOPICS), count)
        lines = [f"{headline(rng, int(label))}\t{label}" for label in labels]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "class.txt").write_text("\n".join(TOPICS) + "\n")


def headline(rng: np.random.Generator, label: int) -> str:
    """Eight to thirty characters, most of them of the topic's own."""
    own = rng.random(int(rng.integers(8, 30))) < 0.7
    return "".join(chr(FIRST + (20 * (label + 1) if mine else 0) + int(rng.integers(0, 20))) for mine in own)
