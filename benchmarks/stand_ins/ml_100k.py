"""MovieLens 100K: what people thought of films."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

USERS, FILMS, RATED = 30, 40, 24


def write(folder: Path) -> None:
    """``ml-100k/u.data``: user, film, rating and moment, with tabs between; and an empty ``ml-100k.zip``."""
    rng = np.random.default_rng(0)
    rows: list[str] = []
    for user in range(USERS):
        for film in rng.permutation(FILMS)[:RATED]:
            rating = 1 + (user + film) % 5
            rows.append(f"{user + 1}\t{film + 1}\t{rating}\t{880000000 + len(rows)}")
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text("\n".join(rows) + "\n")
    with zipfile.ZipFile(folder / "ml-100k.zip", "w"):
        pass
