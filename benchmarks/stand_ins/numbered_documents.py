"""Documents as sentences of numbers of words, as a hierarchical attention network is trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from .numbered_sentences import CLASSES, COUNT, LENGTH, WORDS, padded_words

SENTENCES = 5


def write(folder: Path) -> None:
    """``word_map.json`` and ``TRAIN_data.pth.tar``: ``docs``, ``sentences_per_document``, ``words_per_sentence`` and
    ``labels``, all lists; documents have two to five sentences and are filled up with zeros."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, COUNT).tolist()
    counts = rng.integers(2, SENTENCES + 1, COUNT)
    lengths = rng.integers(4, LENGTH + 1, (COUNT, SENTENCES)) * (np.arange(SENTENCES) < counts[:, None])
    data = {
        "docs": [
            [padded_words(rng, label, length) for length in row]
            for label, row in zip(labels, lengths.tolist(), strict=True)
        ],
        "sentences_per_document": counts.tolist(),
        "words_per_sentence": lengths.tolist(),
        "labels": labels,
    }
    torch.save(data, folder / "TRAIN_data.pth.tar")
    (folder / "word_map.json").write_text(json.dumps(WORDS))
