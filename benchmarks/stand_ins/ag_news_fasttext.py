"""AG's News as fastText reads it: the class before each text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COMMON = "the of in and to a on for".split()
TOPICS = tuple([f"{topic}{number}" for number in range(12)] for topic in ("world", "sport", "money", "tech"))


def write(folder: Path) -> None:
    """``ag_news.train`` and ``ag_news.test``: lines ``__label__CLASS , TEXT``, for classifiers of characters or
    words."""
    for seed, (name, count) in enumerate({"train": 240, "test": 64}.items()):
        rng = np.random.default_rng(seed)
        lines = [f"__label__{label + 1} , {text(rng, int(label))}" for label in rng.integers(0, len(TOPICS), count)]
        (folder / f"ag_news.{name}").write_text("\n".join(lines) + "\n")


def text(rng: np.random.Generator, label: int) -> str:
    """Eight to nineteen words, half of them of the topic's own."""
    own = rng.random(int(rng.integers(8, 20))) < 0.5
    return " ".join(str(rng.choice(TOPICS[label] if mine else COMMON)) for mine in own)
