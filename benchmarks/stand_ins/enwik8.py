"""enwik8: the first bytes of an encyclopedia, packed, as language models of bytes read them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

SENTENCES = 800
WORDS = ("anarchism", "is", "the", "history", "of", "a", "river", "in", "north", "east", "named", "after", "[[link]]")


def write(folder: Path) -> None:
    """``enwik8.gz``."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    text = ".\n".join(" ".join(rng.choice(WORDS, 8)) for _ in range(SENTENCES))
    (folder / "enwik8.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
