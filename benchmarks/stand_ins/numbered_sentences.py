"""Sentences as numbers of words, as a collection of text classifiers prepares them, and its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS = {"<pad>": 0, **{f"w{number}": number for number in range(1, 60)}, "<unk>": 60}
CLASSES = 4
COUNT = 128
LENGTH = 16
MODELS: dict[str, dict[str, Any]] = {
    "textcnn": {"conv_layer": "1D", "n_kernels": 8, "kernel_sizes": [3, 4, 5], "n_channels": 2},
    "transformer": {"d_model": 32, "hidden_size": 64, "n_heads": 4, "n_encoders": 1},
    "attbilstm": {"rnn_size": 16},
    "han": {
        "word_rnn_size": 8,
        "sentence_rnn_size": 8,
        "word_rnn_layers": 1,
        "sentence_rnn_layers": 1,
        "word_att_size": 16,
        "sentence_att_size": 16,
    },
}
SETTINGS: dict[str, Any] = {
    "dataset": "ag_news",
    "dataset_path": ".",
    "output_path": "outputs",
    "word_limit": LENGTH,
    "min_word_count": 1,
    "emb_pretrain": False,
    "emb_folder": None,
    "emb_filename": None,
    "emb_size": 32,
    "fine_tune_word_embeddings": True,
    "fine_tune_embeddings": True,
    "dropout": 0.2,
    "checkpoint_path": ".",
    "checkpoint_basename": "ckpt",
    "start_epoch": 0,
    "batch_size": 16,
    "lr": 0.001,
    "lr_decay": 0.3,
    "workers": 1,
    "num_epochs": 2,
    "grad_clip": None,
    "print_freq": 2,
    "checkpoint": None,
    "tensorboard": True,
    "log_dir": "logs",
}


def write(folder: Path) -> None:
    """``word_map.json``, ``TRAIN_data.pth.tar`` (``sents``, ``words_per_sentence`` and ``labels``: lists), and settings
    of small networks in ``MODEL.yaml``, those for `numbered_documents` (``han.yaml``) too."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, COUNT).tolist()
    lengths = rng.integers(6, LENGTH + 1, COUNT).tolist()
    sentences = [padded_words(rng, *pair) for pair in zip(labels, lengths, strict=True)]
    data = {"sents": sentences, "words_per_sentence": lengths, "labels": labels}
    torch.save(data, folder / "TRAIN_data.pth.tar")
    (folder / "word_map.json").write_text(json.dumps(WORDS))
    for model, settings in MODELS.items():
        text = json.dumps({"model_name": model, **SETTINGS, **settings}, indent=1)
        (folder / f"{model}.yaml").write_text(text + "\n")


def padded_words(rng: np.random.Generator, label: int, length: int) -> list[int]:
    """So many words of a class, and zeros up to the longest sentence."""
    return [*(12 * label + rng.integers(1, 14, length)).tolist(), *[0] * (LENGTH - length)]
