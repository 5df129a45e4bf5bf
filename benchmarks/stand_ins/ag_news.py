"""AG's News: short texts of four classes in quoted rows of class, title and text."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

COMMON = "the a of and to in on for with after new says two more over".split()
TOPICS = (
    "minister election border treaty army capital".split(),
    "match season coach goal league final".split(),
    "market shares profit bank oil prices".split(),
    "software computer internet space network chip".split(),
)


def write(folder: Path) -> None:
    """``train.csv`` and ``test.csv``, and ``vectors.txt``: each word and its 50 numbers, as GloVe has them."""
    for seed, (name, count) in enumerate({"train": 64, "test": 24}.items()):
        rng = np.random.default_rng(seed)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file, quoting=csv.QUOTE_ALL)
            for number in range(count):
                label = number % len(TOPICS)
                rows.writerow([label + 1, _sentence(rng, label), f"{_sentence(rng, label)} {_sentence(rng, label)}"])
    words = [*COMMON, *(word for topic in TOPICS for word in topic), "."]
    vectors = np.random.default_rng(2).normal(0, 0.4, (len(words), 50)).round(4)
    lines = (f"{word} {' '.join(map(str, vector))}" for word, vector in zip(words, vectors, strict=True))
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n")


def _sentence(rng: np.random.Generator, label: int) -> str:
    words = [str(rng.choice(TOPICS[label] if rng.random() < 0.5 else COMMON)) for _ in range(int(rng.integers(4, 9)))]
    return " ".join(words).capitalize() + "."
