"""Sentences and their tags in files beside each other, for taggers that are built on BERT; and a BERT for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from .ner_table import WORDS
from .tiny_bert import SETTINGS, VOCABULARY, weights

COUNTS = {"train": 64, "val": 24, "test": 24}


def write(folder: Path) -> None:
    """``train``, ``val`` and ``test`` with ``sentences.txt`` and ``tags.txt``; ``tags.txt``, a tag in each line; and
    ``bert``: what `transformers` loads."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        (folder / part).mkdir()
        tags = [rng.choice([*["O"] * 4, "B-geo", "B-per"], rng.integers(4, 10)).tolist() for _ in range(count)]
        sentences = [" ".join(str(rng.choice(WORDS[tag])) for tag in each) for each in tags]
        (folder / part / "sentences.txt").write_text("\n".join(sentences) + "\n")
        (folder / part / "tags.txt").write_text("\n".join(" ".join(each) for each in tags) + "\n")
    (folder / "tags.txt").write_text("\n".join(sorted(WORDS)) + "\n")
    (folder / "bert").mkdir()
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for each in WORDS.values() for word in each})]
    known += [f"[unused{number}]" for number in range(len(VOCABULARY) - len(known))]
    (folder / "bert" / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    (folder / "bert" / "config.json").write_text(json.dumps({**SETTINGS, "model_type": "bert"}))
    torch.save({f"bert.{name}": tensor for name, tensor in weights().items()}, folder / "bert" / "pytorch_model.bin")
