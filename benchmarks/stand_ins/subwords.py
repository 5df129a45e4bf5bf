"""Sentences cut into parts of words, and the vocabulary, as a GPT-2 from scratch reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENTENCES, WORDS = 96, 40


def write(folder: Path) -> None:
    """``corpus.train.txt``, ``corpus.test.txt`` and ``vocab.txt``."""
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(WORDS)]
    for part in ("train", "test"):
        lines = []
        for _ in range(SENTENCES):
            start, length = int(rng.integers(WORDS)), int(rng.integers(4, 12))
            lines.append(" ".join(words[(start + step) % WORDS] for step in range(length)))
        (folder / f"corpus.{part}.txt").write_text("\n".join(lines) + "\n")
    (folder / "vocab.txt").write_text("\n".join(["<unk>", "<s>", "</s>", "<pad>", *words]) + "\n")
