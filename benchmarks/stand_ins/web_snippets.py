"""Snippets of web pages in eight subjects, as work on short texts splits them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SUBJECTS = 8
COUNTS = {"train": 75, "test": 37}


def write(folder: Path) -> None:
    """``train.tsv`` and ``test.tsv``: ``label`` and ``body``, words between blanks; half of them tell the subject."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        lines = ["label\tbody"]
        for number in range(count):
            label = number % SUBJECTS
            words = [
                f"w{label}{rng.integers(4)}" if rng.random() < 0.5 else f"any{rng.integers(12)}" for _ in range(12)
            ]
            lines.append(f"{label}\t{' '.join(words[: rng.integers(4, 13)])}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")
