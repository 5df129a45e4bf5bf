"""Short messages that are advertisements (1) or not (0), in a table; and a BERT for their words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from .sms_spam import WORDS
from .tiny_bert import SETTINGS, VOCABULARY, weights

COUNT = 160


def write(folder: Path) -> None:
    """``spamdata_v2.csv``: ``label,text``; and ``bert``: what `transformers` loads."""
    rng = np.random.default_rng(0)
    rows = ["label,text"]
    for number in range(COUNT):
        spam = number % 3 == 0
        rows.append(f"{int(spam)},{' '.join(rng.choice(WORDS['spam' if spam else 'ham'], rng.integers(4, 12)))}")
    (folder / "spamdata_v2.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "bert").mkdir()
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*WORDS["ham"], *WORDS["spam"]})]
    known += [f"[unused{number}]" for number in range(len(VOCABULARY) - len(known))]
    (folder / "bert" / "vocab.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    (folder / "bert" / "config.json").write_text(json.dumps({**SETTINGS, "model_type": "bert"}))
    torch.save({f"bert.{name}": tensor for name, tensor in weights().items()}, folder / "bert" / "pytorch_model.bin")
