"""Documents of sentences of numbered words, of ten kinds, for hierarchical attention."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

WORDS, KINDS, COUNT = 200, 10, 96
SENTENCES, LENGTH = 5, 8
"""At most, in a document and in a sentence."""


def write(folder: Path) -> None:
    """``word_map.json`` and ``TRAIN_data.pth.tar`` with ``docs`` (padded with 0), ``sentences_per_document``,
    ``words_per_sentence`` and ``labels``."""
    words = {"<pad>": 0, **{f"w{number}": number for number in range(1, WORDS)}, "<unk>": WORDS}
    (folder / "word_map.json").write_text(json.dumps(words))
    rng = np.random.default_rng(0)
    data: dict[str, list[object]] = {
        key: [] for key in ("docs", "sentences_per_document", "words_per_sentence", "labels")
    }
    for _ in range(COUNT):
        label, count = int(rng.integers(KINDS)), int(rng.integers(2, SENTENCES + 1))
        lengths = rng.integers(3, LENGTH + 1, count).tolist() + [0] * (SENTENCES - count)
        data["docs"].append([_sentence(rng, label, length) for length in lengths])
        data["sentences_per_document"].append(count)
        data["words_per_sentence"].append(lengths)
        data["labels"].append(label)
    torch.save(data, folder / "TRAIN_data.pth.tar")


def _sentence(rng: np.random.Generator, label: int, length: int) -> list[int]:
    """Words that documents of that kind have more often."""
    words = 1 + (15 * label + rng.integers(0, 25, length)) % (WORDS - 1)
    return [*words.tolist(), *[0] * (LENGTH - length)]
