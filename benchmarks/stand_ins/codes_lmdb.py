"""Codes of pictures in an LMDB: what a VQ-VAE of two levels writes, and a PixelSNAIL is trained on."""

from __future__ import annotations

import pickle
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np

from ._lmdb import write_lmdb

COUNT = 40
CODES = 64
SIDE = 16

CodeRow = namedtuple("CodeRow", ["top", "bottom", "filename"], module="dataset")
"""The script's own, in its file ``dataset.py``."""


def write(folder: Path) -> None:
    """``data.mdb`` with a pickled `CodeRow` for each number, and how many there are, in digits, for ``length``: codes
    of 16 x 16 and of 32 x 32 places (int64), and the name of the picture."""
    dataset = ModuleType("dataset")
    dataset.__dict__["CodeRow"] = CodeRow
    with patch.dict(sys.modules, {"dataset": dataset}):
        rows = [pickle.dumps(row) for row in coded(np.random.default_rng(0))]
    values = {str(number): row for number, row in enumerate(rows)}
    write_lmdb(folder, {**values, "length": str(COUNT).encode()})


def coded(rng: np.random.Generator) -> list[CodeRow]:
    """Codes that go up by one every fourth step downwards or to the right."""
    steps = np.add.outer(np.arange(SIDE), np.arange(SIDE)) // 4
    tops = [(steps + rng.integers(CODES)) % CODES for _ in range(COUNT)]
    return [CodeRow(top, top.repeat(2, 0).repeat(2, 1), f"c/{number}.png") for number, top in enumerate(tops)]
