"""Synth90k: pictures of words, as a network that reads text (CRNN) is trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

WORDS = "cat dog house tree river stone bird cloud sun moon road lamp".split()
COUNTS = {"train": 64, "val": 16, "test": 16}
SIZE = (60, 20)


def write(folder: Path) -> None:
    """``lexicon.txt`` (a word a line), ``PART_NUMBER_WORD.jpg`` (60 x 20, grey) and ``annotation_PART.txt``: the name
    of a picture and the number of its word, from 0, in each line."""
    rng = np.random.default_rng(0)
    (folder / "lexicon.txt").write_text("\n".join(WORDS) + "\n")
    for part, count in COUNTS.items():
        lines = []
        for number, word in enumerate(rng.integers(0, len(WORDS), count)):
            name = f"{part}_{number}_{word}.jpg"
            picture = Image.new("L", SIZE, int(rng.integers(0, 60)))
            ImageDraw.Draw(picture).text((6, 4), WORDS[word], fill=int(rng.integers(160, 255)))
            picture.save(folder / name)
            lines.append(f"{name} {word}")
        (folder / f"annotation_{part}.txt").write_text("\n".join(lines) + "\n")
