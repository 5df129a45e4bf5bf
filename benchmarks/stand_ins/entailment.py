"""Pairs of sentences as numbers, with which follows from which, as natural language inference reads them (ESIM)."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np

COUNTS = {"train_data": 96, "dev_data": 40}
WORDS, SIZE, LONGEST = 40, 12, 9
SETTINGS = {
    "hidden_size": 8,
    "dropout": 0.5,
    "num_classes": 3,
    "epochs": 2,
    "batch_size": 16,
    "lr": 0.0004,
    "patience": 5,
    "max_gradient_norm": 10.0,
}


def write(folder: Path) -> None:
    """``train_data.pkl`` and ``dev_data.pkl`` (premises, hypotheses, labels), ``embeddings.pkl``, and
    ``training.json`` with the settings of a run that looks for them in ``data/preprocessed`` and saves beside it."""
    rng = np.random.default_rng(0)
    for name, count in COUNTS.items():
        labels = rng.integers(0, 3, count).tolist()
        premises = [sentence(rng) for _ in labels]
        hypotheses = [
            premise[: len(premise) // 2 + 1] if label == 0 else sentence(rng)[: 3 + 2 * label]
            for premise, label in zip(premises, labels, strict=True)
        ]
        pairs = {"ids": list(range(count)), "premises": premises, "hypotheses": hypotheses, "labels": labels}
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(pairs))
    (folder / "embeddings.pkl").write_bytes(pickle.dumps(rng.normal(size=(WORDS, SIZE))))
    place = "../../data/preprocessed"
    files = {"train_data": "train_data", "valid_data": "dev_data", "embeddings": "embeddings"}
    paths = {key: f"{place}/{name}.pkl" for key, name in files.items()} | {"target_dir": "../../data/checkpoints"}
    (folder / "training.json").write_text(json.dumps(paths | SETTINGS))


def sentence(rng: np.random.Generator) -> list[int]:
    """Words of a sentence; 0 is padding."""
    return [int(word) for word in rng.integers(1, WORDS, rng.integers(3, LONGEST))]
