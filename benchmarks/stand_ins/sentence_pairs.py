"""A corpus to pretrain BERT on: two sentences that follow each other in each line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = "the a old young man woman dog cat sees hears likes finds house tree river road small large and".split()
LINES = 64


def write(folder: Path) -> None:
    """``corpus.txt``: ``SENTENCE<tab>SENTENCE``, words between blanks."""
    rng = np.random.default_rng(0)
    lines = ["\t".join(" ".join(rng.choice(WORDS, rng.integers(4, 9))) for _ in range(2)) for _ in range(LINES)]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
