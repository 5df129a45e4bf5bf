"""Reviews with what their writers think, in a table, and the words a tokenizer knows in the form of ``tiny_bert``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COUNT = 80
WORDS = {"positive": list("2468"), "negative": list("1357")}


def write(folder: Path) -> None:
    """``train.csv`` with the columns ``review`` and ``sentiment``."""
    rng = np.random.default_rng(0)
    rows = ["review,sentiment"]
    for number in range(COUNT):
        sentiment = ["positive", "negative"][number % 2]
        rows.append(" ".join(rng.choice([*WORDS[sentiment], "9", "0"], 4 + number % 5)) + f",{sentiment}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
