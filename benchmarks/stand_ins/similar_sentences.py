"""Pairs of sentences with a score of how alike they are, and triples of inference, as SimCSE learns from: of characters
that `tiny_bert` knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .thucnews import FIRST

WORDS = [chr(FIRST + number) for number in range(40)]
COUNTS = {"train": 40, "dev": 21, "test": 13}


def write(folder: Path) -> None:
    """``cnsd-sts-SPLIT.txt``: ``name||sentence||sentence||score``; ``train.txt``: a JSON object a line."""
    rng = np.random.default_rng(0)

    def sentence() -> list[str]:
        return list(rng.choice(WORDS, rng.integers(3, 9)))

    for split, count in COUNTS.items():
        lines = []
        for number in range(count):
            first, score = sentence(), number % 6
            second = first[:score] + sentence()[score:]
            lines.append(f"{split}-{number}||{' '.join(first)}||{' '.join(second)}||{score}")
        (folder / f"cnsd-sts-{split}.txt").write_text("\n".join(lines) + "\n")
    kinds = ("origin", "entailment", "contradiction")
    triples = [{kind: " ".join(sentence()) for kind in kinds} for _ in range(COUNTS["train"])]
    (folder / "train.txt").write_text("".join(json.dumps(triple) + "\n" for triple in triples))
