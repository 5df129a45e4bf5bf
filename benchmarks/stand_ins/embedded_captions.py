"""Captions with CLIP's view of their pictures, pickled; and a very small GPT-2 that reads them letter by letter."""

from __future__ import annotations

import copyreg
import io
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
    (folder / "captions.pkl").write_bytes(pickled({"clip_embedding": rows, "captions": captions}))
    model = folder / "gpt2"
    model.mkdir()
    (model / "vocab.json").write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    (model / "merges.txt").write_text("#version: 0.2\n")
    sizes = {"vocab_size": len(LETTERS), "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    (model / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))


def pickled(content: object) -> bytes:
    """A pickle that is the same each time: torch's own names a tensor's storage by where it lies in memory."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = copyreg.dispatch_table.copy()
    pickler.dispatch_table[torch.Tensor] = lambda tensor: (torch.from_numpy, (tensor.numpy(),))
    pickler.dump(content)
    return buffer.getvalue()
