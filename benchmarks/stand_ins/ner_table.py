"""Words of sentences with their tags, in the table of the annotated corpus of Kaggle; and a BERT for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from .tiny_bert import SETTINGS, VOCABULARY, weights

WORDS = {"O": "the man sees a house in".split(), "B-geo": ["paris", "rome", "york"], "B-per": ["anna", "peter", "ivan"]}
KINDS = {"O": "NN", "B-geo": "NNP", "B-per": "NNP"}
COUNT = 64


def write(folder: Path) -> None:
    """``ner_dataset.csv``: ``Sentence #``, ``Word``, ``POS``, ``Tag``; and ``bert``: what `transformers` loads."""
    rng = np.random.default_rng(0)
    rows = ["Sentence #,Word,POS,Tag"]
    for sentence in range(COUNT):
        for place in range(rng.integers(4, 10)):
            tag = str(rng.choice([*["O"] * 4, "B-geo", "B-per"]))
            start = f"Sentence: {sentence + 1}" if place == 0 else ""
            rows.append(f"{start},{rng.choice(WORDS[tag])},{KINDS[tag]},{tag}")
    (folder / "ner_dataset.csv").write_text("\n".join(rows) + "\n", encoding="latin-1")
    (folder / "bert").mkdir()
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for each in WORDS.values() for word in each})]
    known += [f"[unused{number}]" for number in range(len(VOCABULARY) - len(known))]
    (folder / "bert" / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    (folder / "bert" / "config.json").write_text(json.dumps({**SETTINGS, "model_type": "bert"}))
    torch.save({f"bert.{name}": tensor for name, tensor in weights().items()}, folder / "bert" / "pytorch_model.bin")
