"""Sentences in two languages, as transformer-pytorch numbers the example of OpenNMT."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ENGLISH = "the a old young man woman dog cat sees hears likes finds house tree river road small large and .".split()
GERMAN = "der ein alte junge Mann Frau Hund Katze sieht hört mag findet Haus Baum Fluss Weg klein groß und .".split()
SIGNS = ("<PAD>", "<UNK>", "<StartSent>", "<EndSent>")
START, END = 2, 3
COUNTS = {"train": 160, "val": 80}


def write(folder: Path) -> None:
    """``raw-PART.txt``, a sentence, a tab and its translation word by word; ``indexed-PART.txt``, the same as numbers,
    the translation with a sign before it and once more with one after it; and
    ``vocabulary-source.txt``, ``vocabulary-target.txt``: number, word, and how often it was there."""
    rng = np.random.default_rng(0)
    counted = np.zeros(len(ENGLISH), int)
    for part, count in COUNTS.items():
        raw, indexed = [], []
        for _ in range(count):
            sentence = rng.integers(0, len(ENGLISH), rng.integers(4, 10)).tolist()
            raw.append("\t".join(" ".join(words[word] for word in sentence) for words in (ENGLISH, GERMAN)))
            numbers = [word + len(SIGNS) for word in sentence]
            indexed.append("\t".join(" ".join(map(str, row)) for row in (numbers, [START, *numbers], [*numbers, END])))
            if part == "train":
                np.add.at(counted, sentence, 1)
        (folder / f"raw-{part}.txt").write_text("\n".join(raw) + "\n", encoding="utf-8")
        (folder / f"indexed-{part}.txt").write_text("\n".join(indexed) + "\n")
    for name, words in {"source": ENGLISH, "target": GERMAN}.items():
        known = zip((*SIGNS, *words), (*[0] * len(SIGNS), *counted.tolist()), strict=True)
        lines = [f"{number}\t{word}\t{times}" for number, (word, times) in enumerate(known)]
        (folder / f"vocabulary-{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
