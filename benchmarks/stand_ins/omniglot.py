"""Omniglot: letters of many alphabets, each written by several people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

ALPHABETS = ("Greek", "Latin", "Tagalog")
LETTERS = 8
WRITERS = 20


def write(folder: Path) -> None:
    """``data/ALPHABET/characterNN/NUMBER.png`` (105 x 105, black on white) and which of them are for what:
    ``splits/vinyals/PART.txt`` with lines ``ALPHABET/characterNN/rotANGLE``."""
    rng = np.random.default_rng(0)
    for number, alphabet in enumerate(ALPHABETS):
        for letter in range(LETTERS):
            strokes = rng.random((7, 7)) < 0.4
            inside = folder / "data" / alphabet / f"character{letter + 1:02d}"
            inside.mkdir(parents=True)
            for writer in range(WRITERS):
                written = np.kron(strokes ^ (rng.random((7, 7)) < 0.05), np.ones((15, 15), bool))
                Image.fromarray(~written).save(inside / f"{number}{letter:03d}_{writer + 1:02d}.png")
    splits = folder / "splits" / "vinyals"
    splits.mkdir(parents=True)
    for part, alphabets in {"train": ALPHABETS[:1], "val": ALPHABETS[1:2], "test": ALPHABETS[2:]}.items():
        lines = [
            f"{alphabet}/character{letter + 1:02d}/rot{angle:03d}"
            for alphabet in alphabets
            for letter in range(LETTERS)
            for angle in (0, 90, 180, 270)
        ]
        (splits / f"{part}.txt").write_text("\n".join(lines) + "\n")
    (splits / "trainval.txt").write_text((splits / "train.txt").read_text() + (splits / "val.txt").read_text())
