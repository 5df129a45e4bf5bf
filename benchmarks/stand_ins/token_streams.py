"""Texts as one stream of tokens, in the files in which those who pretrain language models keep them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

TOKENS = 60
COUNT = 2048
PARTS = 3
WORDS = "the a old young man woman dog cat sees hears likes finds house tree river road".split()


def write(folder: Path) -> None:
    """``PART.h5`` with ``tokens``, ``data0N.bin`` of unsigned shorts, ``tokenized_train_N.txt`` of written numbers, and
    ``texts.jsonl``, ``chats.jsonl``: a text or a conversation on each line."""
    rng = np.random.default_rng(0)
    for part in ("train", "dev"):
        with h5py.File(folder / f"{part}.h5", "w") as file:
            file.create_dataset("tokens", data=_stream(rng).astype(np.int64))
    for number in range(PARTS):
        _stream(rng).astype(np.uint16).tofile(folder / f"data0{number}.bin")
        (folder / f"tokenized_train_{number}.txt").write_text(" ".join(map(str, _stream(rng))) + "\n")
    texts = [" ".join(rng.choice(WORDS, rng.integers(5, 20))) for _ in range(64)]
    _lines(folder / "texts.jsonl", [{"text": text} for text in texts])
    turns = [{"role": "user", "content": "Say something."}]
    _lines(folder / "chats.jsonl", [{"conversations": [*turns, {"role": "assistant", "content": t}]} for t in texts])


def _stream(rng: np.random.Generator) -> np.ndarray:
    """Tokens that mostly follow from the one before."""
    steps = rng.integers(1, 4, COUNT)
    return (np.cumsum(steps) % TOKENS) + 1


def _lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
