"""Family names by the language that they come from, as the tutorials of PyTorch on names have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SYLLABLES = {
    "English": ["ham", "ton", "smith", "wood", "ley", "field"],
    "Italian": ["ros", "si", "ber", "ti", "ni", "gallo"],
    "Japanese": ["ya", "ma", "mo", "to", "su", "zuki"],
    "Russian": ["iva", "nov", "pe", "trov", "sky", "lev"],
}
COUNT = 24


def write(folder: Path) -> None:
    """``names/LANGUAGE.txt``, a name on each line, and ``surnames_with_splits.csv``, with their part of the data."""
    rng = np.random.default_rng(0)
    (folder / "names").mkdir()
    rows = ["nationality,nationality_index,split,surname"]
    for index, (language, syllables) in enumerate(SYLLABLES.items()):
        names = ["".join(rng.choice(syllables, rng.integers(2, 4))).capitalize() for _ in range(COUNT)]
        (folder / "names" / f"{language}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        parts = ("train", "train", "val", "test")
        rows += [f"{language},{index},{parts[number % 4]},{name}" for number, name in enumerate(names)]
    (folder / "surnames_with_splits.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
