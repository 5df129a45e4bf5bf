"""A very small BERT of random weights for the characters of the headlines of `thucnews`."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from .thucnews import FIRST, TOPICS

HIDDEN = 32
INNER = 64
POSITIONS = 64
LAYERS = 2
CHARACTERS = [*"0123456789", *(chr(FIRST + number) for number in range(20 * (len(TOPICS) + 1)))]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS]
SETTINGS = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": INNER,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}


def write(folder: Path) -> None:
    """``vocab.txt``, ``bert_config.json`` and ``pytorch_model.bin``: a folder from which `pytorch_pretrained` and its
    like load a model that a classifier of texts is to fine-tune."""
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "bert_config.json").write_text(json.dumps(SETTINGS))
    torch.save({f"bert.{name}": tensor for name, tensor in weights().items()}, folder / "pytorch_model.bin")


def weights() -> dict[str, torch.Tensor]:
    """Every parameter by its name in BERT."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, torch.Tensor] = {}

    def matrix(name: str, *shape: int) -> None:
        found[f"{name}.weight"] = 0.02 * torch.randn(shape, generator=generator)

    def linear(name: str, outputs: int, inputs: int) -> None:
        matrix(name, outputs, inputs)
        found[f"{name}.bias"] = torch.zeros(outputs)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = torch.ones(HIDDEN), torch.zeros(HIDDEN)

    for kind, count in {"word": len(VOCABULARY), "position": POSITIONS, "token_type": 2}.items():
        matrix(f"embeddings.{kind}_embeddings", count, HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(LAYERS)):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{part}", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", INNER, HIDDEN)
        linear(f"{layer}.output.dense", HIDDEN, INNER)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", HIDDEN, HIDDEN)
    return found
