"""Sentences with the entities in them by the numbers of their words, as recognisers of nested entities read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .tiny_bert import CHARACTERS

COUNTS = {"train": 48, "dev": 16, "test": 16}
SETTINGS = {
    "dataset": "words",
    "save_path": "model.pt",
    "predict_path": "output.json",
    "dist_emb_size": 4,
    "type_emb_size": 4,
    "lstm_hid_size": 16,
    "conv_hid_size": 8,
    "bert_hid_size": 32,
    "biaffine_size": 8,
    "ffnn_hid_size": 8,
    "dilation": [1, 2],
    "emb_dropout": 0.0,
    "conv_dropout": 0.0,
    "out_dropout": 0.0,
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": 0.001,
    "weight_decay": 0,
    "clip_grad_norm": 5.0,
    "bert_name": "bert",
    "bert_learning_rate": 0.0001,
    "warm_factor": 0.1,
    "use_bert_last_4_layers": False,
    "seed": 123,
}


def write(folder: Path) -> None:
    """``train.json``, ``dev.json`` and ``test.json``: every third word is a place, with the next one a person."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        sentences = []
        for _ in range(count):
            numbers = rng.integers(0, len(CHARACTERS), rng.integers(5, 12))
            last = len(numbers) - 1
            entities = [{"index": [at], "type": "PLACE"} for at, word in enumerate(numbers) if word % 3 == 0]
            entities += [{"index": [at, at + 1], "type": "PERSON"} for at in range(last) if numbers[at] % 3 == 0]
            sentences.append({"sentence": [CHARACTERS[word] for word in numbers], "ner": entities})
        (folder / f"{split}.json").write_text(json.dumps(sentences))
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
