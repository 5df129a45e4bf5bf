"""Who bought what, as recommenders that propagate over the graph of users and items read it (NGCF, LightGCN)."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

USERS, ITEMS = 40, 60
BOUGHT, LEFT_OUT = 12, 4


def write(folder: Path) -> None:
    """``train.txt`` and ``test.txt``, a user a line with the items after it; and ``triplets.pickle``, the same as lists
    of items by user and as pairs, which are ranked against items drawn at random (BPR)."""
    rng = np.random.default_rng(0)
    likes = np.exp(-((np.arange(ITEMS)[None] / ITEMS - np.arange(USERS)[:, None] / USERS) ** 2) * 8)
    chosen = [rng.choice(ITEMS, BOUGHT, replace=False, p=row / row.sum()).tolist() for row in likes]
    parts = {"train": [items[LEFT_OUT:] for items in chosen], "test": [items[:LEFT_OUT] for items in chosen]}
    for part, items in parts.items():
        lines = (" ".join(map(str, [user, *bought])) for user, bought in enumerate(items))
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    pairs = [(user, item) for user, bought in enumerate(parts["train"]) for item in bought]
    content = {
        "user_size": USERS,
        "item_size": ITEMS,
        "train_user_list": parts["train"],
        "test_user_list": parts["test"],
        "train_pair": pairs,
    }
    (folder / "triplets.pickle").write_bytes(pickle.dumps(content))
