"""Who watched what in which order, as sequential recommenders read it (Caser), and in parts (variational ones)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

USERS, ITEMS, WATCHED, LEFT_OUT = 24, 30, 16, 4


def write(folder: Path) -> None:
    """``train.txt`` and ``test.txt``, a line for user, item and 1; ``pro_sg``, tables of users and items by part."""
    rng = np.random.default_rng(0)
    chains = [(rng.integers(ITEMS) + np.arange(WATCHED) * rng.integers(1, 4)) % ITEMS for _ in range(USERS)]
    chains[0] = np.arange(ITEMS)  # every item is in what is trained on
    for part, chosen in {"train": slice(None, -LEFT_OUT), "test": slice(-LEFT_OUT, None)}.items():
        lines = [f"{user + 1} {item + 1} 1" for user, chain in enumerate(chains) for item in chain[chosen]]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    tables = folder / "pro_sg"
    tables.mkdir()
    (tables / "unique_sid.txt").write_text("".join(f"{item}\n" for item in range(ITEMS)))
    parts = {"train": range(12), "validation": range(12, 18), "test": range(18, 24)}
    for part, users in parts.items():
        seen = {f"{part}_tr": slice(None, -LEFT_OUT), f"{part}_te": slice(-LEFT_OUT, None)}
        for name, chosen in seen.items() if part != "train" else [(part, slice(None))]:
            rows = [f"{user},{item}" for user in users for item in sorted(set(chains[user][chosen].tolist()))]
            (tables / f"{name}.csv").write_text("\n".join(["uid,sid", *rows]) + "\n")
