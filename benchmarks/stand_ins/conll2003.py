"""Sentences with names in them, as CoNLL 2003 has them, and vectors for their words."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = {
    "O": "the a of and said to in on with from by".split(),
    "I-PER": "john mary peter anna smith".split(),
    "I-LOC": "london paris berlin rome madrid".split(),
    "I-ORG": "reuters nato unesco bayer fiat".split(),
}
SHARES = (0.55, 0.15, 0.15, 0.15)
COUNTS = {"eng.train": 72, "eng.testa": 24, "eng.testb": 24}


def write(folder: Path) -> None:
    """``eng.train``, ``eng.testa`` and ``eng.testb``, a word with its tags to a line, and ``glove.6B.100d.txt`` with
    vectors of 20 numbers."""
    rng = np.random.default_rng(0)
    for name, count in COUNTS.items():
        sentences = ["".join(_line(rng) for _ in range(rng.integers(4, 10))) for _ in range(count)]
        (folder / name).write_text("-DOCSTART- -X- -X- O\n\n" + "\n".join(sentences) + "\n")
    words = [*(word for kind in WORDS.values() for word in kind), "other", "words"]
    vectors = (" ".join(f"{number:.4f}" for number in rng.normal(0, 0.4, 20)) for _ in words)
    lines = (f"{word} {vector}\n" for word, vector in zip(words, vectors, strict=True))
    (folder / "glove.6B.100d.txt").write_text("".join(lines))


def _line(rng: np.random.Generator) -> str:
    tag = str(rng.choice(list(WORDS), p=SHARES))
    return f"{rng.choice(WORDS[tag])} NN B-NP {tag}\n"
