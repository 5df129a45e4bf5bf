"""Texts with a tag for each character, as a tagger of a recurrent network and a conditional random field reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

INSIDE, OUTSIDE = "abcdef", "uvwxyz"
TEXTS = 120


def write(folder: Path) -> None:
    """``vocab.json`` (a list of characters), ``tags.json`` (a list of tags) and ``dataset.txt``: a text and the list of
    its tags in each line, a tab between them."""
    rng = np.random.default_rng(0)
    lines = ["{}\t{}".format(*tagged(rng)) for _ in range(TEXTS)]
    (folder / "vocab.json").write_text(json.dumps(list(INSIDE + OUTSIDE)))
    (folder / "tags.json").write_text(json.dumps(["B", "I", "O"]))
    (folder / "dataset.txt").write_text("\n".join(lines) + "\n")


def tagged(rng: np.random.Generator) -> tuple[str, str]:
    """A text, and its tags in JSON: ``B`` and ``I`` for some characters, ``O`` for the others."""
    characters: list[str] = []
    tags: list[str] = []
    for _ in range(int(rng.integers(2, 5))):
        inside, outside = (int(count) for count in rng.integers(1, 4, 2))
        characters += [*rng.choice(list(INSIDE), inside), *rng.choice(list(OUTSIDE), outside)]
        tags += ["B"] + ["I"] * (inside - 1) + ["O"] * outside
    return "".join(characters), json.dumps(tags)
