"""Ratings by users who trust some others, as social recommenders read them (GraphRec)."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np

USERS, ITEMS, RATINGS = 20, 15, [2.0, 1.0, 3.0, 4.0, 2.5, 3.5, 1.5, 0.5]
HELD_OUT = 30


def write(folder: Path) -> None:
    """``toy_dataset.pickle``: what each user rated and how, the same for each item, the ratings to train on and to
    test on, whom each user trusts, and the numbers of the ratings."""
    rng = np.random.default_rng(0)
    rated = [
        (user, item) for user in range(USERS) for item in range(ITEMS) if rng.random() < 0.5 or user % ITEMS == item
    ]
    pairs = [(*rated[number], RATINGS[rng.integers(len(RATINGS))]) for number in rng.permutation(len(rated))]
    kept, held = pairs[HELD_OUT:], pairs[:HELD_OUT]
    ratings = {rating: number for number, rating in enumerate(RATINGS)}
    by_user, how_by_user, by_item, how_by_item = (defaultdict(list) for _ in range(4))
    for user, item, rating in pairs:
        by_user[user].append(item)
        how_by_user[user].append(ratings[rating])
        by_item[item].append(user)
        how_by_item[item].append(ratings[rating])
    trust = {user: {(user + step) % USERS for step in range(1, 2 + user % 3)} for user in range(USERS)}
    columns = [list(column) for part in (kept, held) for column in zip(*part, strict=True)]
    content = (by_user, how_by_user, by_item, how_by_item, *columns, trust, ratings)
    (folder / "toy_dataset.pickle").write_bytes(pickle.dumps(content))
