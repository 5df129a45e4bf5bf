"""wikitext-2: sentences in which the next word follows from the last."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAME = "wikitext-2"
WORDS = 60


def write(folder: Path) -> None:
    """``train.txt``, ``valid.txt`` and ``test.txt``: a sentence a line, rare words as ``<unk>``."""
    vocabulary = [f"word{number}" for number in range(WORDS - 1)] + ["<unk>"]
    for seed, (split, count) in enumerate((("train", 200), ("valid", 60), ("test", 60))):
        rng = np.random.default_rng(seed)
        lines = []
        for _ in range(count):
            word, sentence = int(rng.integers(WORDS)), []
            for _ in range(int(rng.integers(8, 20))):
                sentence.append(vocabulary[word])
                word = (3 * word + int(rng.integers(3))) % WORDS
            lines.append(f" {' '.join(sentence)} \n")
        (folder / f"{split}.txt").write_text("".join(lines))
