"""Poems of the Tang dynasty, as numbers: the file that a Chinese book on PyTorch hands out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

POEMS = 64
LENGTH = 32
SIGNS = "春江花月夜凉如水山人天云风雨雪霜红白青黄东西南北，。！深度学习"  # noqa: RUF001


def write(folder: Path) -> None:
    """``tang.npz`` with ``data`` (poems x length, filled up at their front), ``word2ix`` and ``ix2word``."""
    words = [*dict.fromkeys(SIGNS), "<EOP>", "<START>", "</s>"]
    numbers = {word: number for number, word in enumerate(words)}
    rng = np.random.default_rng(0)
    poems = np.full((POEMS, LENGTH), numbers["</s>"], np.int32)
    for row in poems:
        length = int(rng.integers(10, LENGTH - 2))
        start = int(rng.integers(len(words)))
        signs = (start + np.arange(length)) % (len(words) - 3)
        row[-length - 2 :] = [numbers["<START>"], *signs, numbers["<EOP>"]]
    np.savez_compressed(
        folder / "tang.npz",
        data=poems,
        word2ix=np.array(numbers, dtype=object),
        ix2word=np.array(dict(enumerate(words)), dtype=object),
    )
