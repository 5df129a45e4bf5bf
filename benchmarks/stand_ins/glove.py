"""GloVe: a vector for each of some words."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = (
    "the a an of to and in is it i you he she they we this that was for on with as at by be are not have has do so "
    "but all one like just my your his her its if or what when who good bad new love great best time day people"
).split()
LENGTHS = {"glove.twitter.27B": (25, 50), "glove.6B": (50, 100)}


def write(folder: Path) -> None:
    """``NAME/NAME.LENGTHd.txt``: a word and its numbers in each line."""
    rng = np.random.default_rng(0)
    for name, lengths in LENGTHS.items():
        (folder / name).mkdir()
        for length in lengths:
            vectors = rng.normal(scale=0.4, size=(len(WORDS), length))
            lines = [
                f"{word} {' '.join(f'{number:.5f}' for number in vector)}"
                for word, vector in zip(WORDS, vectors, strict=True)
            ]
            (folder / name / f"{name}.{length}d.txt").write_text("\n".join(lines) + "\n")
