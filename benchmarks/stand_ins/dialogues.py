"""Dialogues as the numbers of their characters, as models that chat are trained on them (GPT2-chitchat)."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

DIALOGUES, WORDS, BEGIN, END = 80, 60, 101, 102


def write(folder: Path) -> None:
    """``train.pkl``: a list of dialogues, each a list of numbers, utterances between separators."""
    rng = np.random.default_rng(0)
    dialogues = []
    for _ in range(DIALOGUES):
        dialogue = [BEGIN]
        for _ in range(int(rng.integers(1, 4))):
            start = int(rng.integers(200, 200 + WORDS))
            dialogue += [200 + (start + step) % WORDS for step in range(int(rng.integers(2, 8)))] + [END]
        dialogues.append(dialogue)
    (folder / "train.pkl").write_bytes(pickle.dumps(dialogues))
