"""Sessions of items, and for each item those that stand beside it, pickled."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

ITEMS = 310


def write(folder: Path) -> None:
    """``train.txt`` and ``test.txt`` of (beginnings of sessions, the next item of each), ``adj_12.pkl`` of an item's
    neighbours and ``num_12.pkl`` of how often each of them stands beside it."""
    rng = random.Random(5)
    for name, count in (("train", 48), ("test", 14)):
        sessions = [[rng.randrange(1, ITEMS) for _ in range(rng.randrange(2, 7))] for _ in range(count)]
        split = [each[:-1] for each in sessions], [each[-1] for each in sessions]
        (folder / f"{name}.txt").write_bytes(pickle.dumps(split))
    near = [[], *([rng.randrange(1, ITEMS) for _ in range(rng.randrange(1, 6))] for _ in range(ITEMS - 1))]
    (folder / "adj_12.pkl").write_bytes(pickle.dumps(near))
    (folder / "num_12.pkl").write_bytes(pickle.dumps([[rng.randrange(1, 5) for _ in each] for each in near]))
