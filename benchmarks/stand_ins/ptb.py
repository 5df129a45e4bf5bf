"""Penn Treebank as scripts for language models read it: tokens of three text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = 60
LINES = {"train": 160, "valid": 40, "test": 40}


def write(folder: Path) -> None:
    """``train.txt``, ``valid.txt`` and ``test.txt``: a sentence a line, in which each word suggests the next."""
    folder.mkdir(parents=True, exist_ok=True)
    follows = np.random.default_rng(7).integers(0, WORDS, (WORDS, 3))
    for seed, (split, count) in enumerate(LINES.items()):
        rng = np.random.default_rng(seed)
        sentences = [sentence(rng, follows) for _ in range(count)]
        (folder / f"{split}.txt").write_text("\n".join(sentences) + "\n")


def sentence(rng: np.random.Generator, follows: np.ndarray) -> str:
    """Twelve words of a chain."""
    word = int(rng.integers(0, WORDS))
    words = []
    for _ in range(12):
        words.append(f"word{word}")
        word = int(follows[word, rng.integers(0, follows.shape[1])])
    return " " + " ".join(words) + " "
