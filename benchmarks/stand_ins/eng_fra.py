"""English sentences and what they are in French, as the tutorial of PyTorch on translation reads them."""

from __future__ import annotations

import pickle
from itertools import product
from pathlib import Path

SUBJECTS = {"i am": "je suis", "he is": "il est", "she is": "elle est", "they are": "ils sont"}
REST = {"old": "vieux", "young": "jeune", "tired": "fatigue", "here": "ici", "very late": "tres en retard"}
ENDS = {".": ".", "!": "!"}
FIRST = 4  # the numbers before it are padding and signs


def write(folder: Path) -> None:
    """``eng-fra.txt``: a sentence, a tab and its translation; and LANGUAGE/PART.pkl: lists of numbers of words."""
    pairs = []
    for (subject, sujet), (rest, reste), (end, fin) in product(SUBJECTS.items(), REST.items(), ENDS.items()):
        pairs.append((f"{subject} {rest} {end}", f"{sujet} {reste} {fin}"))
    (folder / "eng-fra.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    for side, language in enumerate(("en", "fr")):
        sentences = [pair[side].split() for pair in pairs]
        words = sorted({word for sentence in sentences for word in sentence})
        numbered = [[FIRST + words.index(word) for word in sentence] for sentence in sentences]
        (folder / language).mkdir()
        for part, chosen in {"train": numbered, "val": numbered[::4]}.items():
            (folder / language / f"{part}.pkl").write_bytes(pickle.dumps(chosen))
