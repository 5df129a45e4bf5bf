"""Beginnings of sessions and the item that follows each, as graph networks on sessions read them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from .sessions import session

COUNTS = {"train": 256, "test": 64}


def write(folder: Path) -> None:
    """``train.txt`` and ``test.txt``, which are pickled: a list of beginnings (items from 1) and a list of the items
    that follow."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng(seed)
        beginnings: list[list[int]] = []
        targets: list[int] = []
        while len(targets) < count:
            items = [item + 1 for item in session(rng)]
            beginnings += [items[:end] for end in range(1, len(items))]
            targets += items[1:]
        (folder / f"{split}.txt").write_bytes(pickle.dumps((beginnings[:count], targets[:count])))
