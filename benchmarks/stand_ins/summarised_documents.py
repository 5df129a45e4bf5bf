"""Documents of some sentences, of which those with a given word belong into the summary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

WORDS, DIMENSION = 40, 8
COUNTS = {"train": 32, "val": 12, "test": 12}


def write(folder: Path) -> None:
    """``train.json``, ``val.json``, ``test.json`` with a document a line, ``embedding.npz`` and ``word2id.json``."""
    rng = np.random.default_rng(0)
    words = [f"word{each}" for each in range(WORDS)]
    for part, count in COUNTS.items():
        lines = []
        for _ in range(count):
            numbers = [rng.integers(0, WORDS, rng.integers(3, 9)).tolist() for _ in range(rng.integers(2, 6))]
            sentences = [" ".join(words[each] for each in row) for row in numbers]
            labels = "\n".join(str(int(min(row) < 4)) for row in numbers)
            lines.append(json.dumps({"doc": "\n".join(sentences), "labels": labels, "summaries": sentences[0]}))
        (folder / f"{part}.json").write_text("\n".join(lines) + "\n")
    known = {"PAD_TOKEN": 0, "UNK_TOKEN": 1} | {word: number + 2 for number, word in enumerate(words)}
    (folder / "word2id.json").write_text(json.dumps(known))
    np.savez(folder / "embedding.npz", embedding=rng.normal(size=(len(known), DIMENSION)).astype("float32"))
