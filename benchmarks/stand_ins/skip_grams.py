"""Words and those around them, as pytorch-sgns prepares a corpus."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

WORDS = ["<UNK>", *(f"w{number}" for number in range(1, 40))]
WINDOW = 2
COUNT = 256


def write(folder: Path) -> None:
    """``idx2word.dat``, ``wc.dat`` (how often each was there) and ``train.dat``: pairs of a word and its neighbours."""
    rng = np.random.default_rng(0)
    words = rng.integers(1, len(WORDS), COUNT)
    pairs = []
    for place in range(WINDOW, COUNT - WINDOW):
        around = [*words[place - WINDOW : place], *words[place + 1 : place + 1 + WINDOW]]
        pairs.append((int(words[place]), [int(word) for word in around]))
    counts = {word: int((words == number).sum()) + 1 for number, word in enumerate(WORDS)}
    for name, content in {"idx2word": WORDS, "wc": counts, "train": pairs}.items():
        (folder / f"{name}.dat").write_bytes(pickle.dumps(content))
