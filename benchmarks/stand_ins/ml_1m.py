"""MovieLens 1M: what users think of films, as it is published and as papers on recommendation split it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

USERS = 60
FILMS = 140
RATINGS = 24
"""Of each user."""


def write(folder: Path) -> None:
    """``ratings.dat``, ``users.dat`` and ``movies.dat``, their fields between ``::``; and the split of the paper on
    neural collaborative filtering: ``ml-1m.train.rating``, ``ml-1m.test.rating``, ``ml-1m.test.negative``."""
    rng = np.random.default_rng(0)
    ratings, train, test, negative = [], [], [], []
    for user in range(USERS):
        films = rng.permutation(FILMS)
        seen, unseen = films[:RATINGS], films[RATINGS:]
        stars = 1 + (seen + user) % 5
        times = 978300000 + np.sort(rng.integers(0, 10**6, RATINGS))
        ratings += [
            f"{user + 1}::{film + 1}::{star}::{time}" for film, star, time in zip(seen, stars, times, strict=True)
        ]
        rows = [f"{user}\t{film}\t{star}\t{time}" for film, star, time in zip(seen, stars, times, strict=True)]
        train += rows[:-1]
        test.append(rows[-1])
        negative.append("\t".join([f"({user},{seen[-1]})", *map(str, unseen[:99])]))
    users = [f"{user + 1}::{'FM'[user % 2]}::{25 + user % 30}::{user % 20}::{10000 + user}" for user in range(USERS)]
    films_told = [f"{film + 1}::Film {film + 1} (1999)::{('Comedy', 'Drama')[film % 2]}" for film in range(FILMS)]
    files = {
        "ratings.dat": ratings,
        "users.dat": users,
        "movies.dat": films_told,
        "README": ["A stand-in"],
        "ml-1m.train.rating": train,
        "ml-1m.test.rating": test,
        "ml-1m.test.negative": negative,
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
