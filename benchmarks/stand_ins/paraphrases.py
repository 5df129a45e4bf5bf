"""Pairs of sentences that say the same or not, as the Microsoft Research Paraphrase Corpus lists them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = "the a old young man woman dog cat sees hears likes finds house tree river road small large and".split()
COUNTS = {"train": 75, "test": 12}


def write(folder: Path) -> None:
    """``msr_paraphrase_train.txt`` and ``..._test.txt``: a table with tabs, the answer first and the sentences last."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(count):
            first = list(rng.choice(WORDS, rng.integers(3, 7)))
            second = list(reversed(first)) if number % 2 else list(rng.choice(WORDS, rng.integers(3, 7)))
            lines.append(f"{number % 2}\t{2 * number}\t{2 * number + 1}\t{' '.join(first)}\t{' '.join(second)}")
        (folder / f"msr_paraphrase_{split}.txt").write_text("\n".join(lines) + "\n")
