"""Penn Treebank in one line a file, with the ends of sentences written out, as scripts that split at blanks read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = 40
SENTENCE = 9
COUNTS = {"train": 700, "valid": 150, "test": 150}


def write(folder: Path) -> None:
    """``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt``: words of a chain, ``<eos>`` after each ninth, a blank
    at both ends; every word is in the first."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        tokens = chain(np.random.default_rng(seed), count)
        if split == "train":
            tokens += [f"w{word}" for word in range(WORDS)]
        (folder / f"ptb.{split}.txt").write_text(f" {' '.join(tokens)} ")


def chain(rng: np.random.Generator, count: int) -> list[str]:
    """So many words, each of which suggests the next, and the ends of the sentences among them."""
    word, tokens = 0, []
    for number in range(1, count + 1):
        word = (3 * word + int(rng.integers(3))) % WORDS
        tokens += [f"w{word}"] if number % SENTENCE else [f"w{word}", "<eos>"]
    return tokens
