"""Captions with CLIP's view of their pictures, pickled; and a very small GPT-2 that reads them letter by letter."""

from __future__ import annotations

import json
import pickle
import string
from pathlib import Path

import torch

COUNT, WIDTH = 64, 512
WORDS = "a small red bird sits on the old garden wall".split()
LETTERS = ["<|endoftext|>", "\u0120", *string.ascii_lowercase]


def write(folder: Path) -> None:
    """``captions.pkl``: ``clip_embedding``, a row for each caption, and ``captions``, dicts; ``gpt2``: the tokenizer's
    ``vocab.json`` and ``merges.txt``, which merges nothing, and the model's ``config.json``."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, len(WORDS), (COUNT, 4), generator=generator).tolist()
    captions = [
        {"image_id": number, "clip_embedding": number, "caption": " ".join(WORDS[each] for each in words)}
        for number, words in enumerate(drawn)
    ]
    rows = torch.randn(COUNT, WIDTH, generator=generator)
    (folder / "captions.pkl").write_bytes(pickle.dumps({"clip_embedding": rows, "captions": captions}))
    model = folder / "gpt2"
    model.mkdir()
    (model / "vocab.json").write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    (model / "merges.txt").write_text("#version: 0.2\n")
    sizes = {"vocab_size": len(LETTERS), "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    (model / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
