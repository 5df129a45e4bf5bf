"""Resumes in Chinese in which names and companies are marked, for taggers of characters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ENTITIES = {"NAME": "赵钱孙李周吴郑王", "ORG": "公司集团大学银行"}
REST = "、任的在和年月曾现于"
COUNTS = {"train": 80, "dev": 24, "test": 24}


def write(folder: Path) -> None:
    """``train.char.bmes``, ``dev.char.bmes`` and ``test.char.bmes``: a character and its tag in each line (``B-NAME``
    at the beginning of a name, ``M-NAME`` within, ``E-NAME`` at its end, ``O`` outside), an empty line after each
    sentence."""
    for seed, (split, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng(seed)
        sentences = ["".join(f"{line}\n" for line in sentence(rng)) for _ in range(count)]
        (folder / f"{split}.char.bmes").write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")


def sentence(rng: np.random.Generator) -> list[str]:
    """The lines of two or three names and companies, and what lies between them."""
    lines = []
    for _ in range(int(rng.integers(2, 4))):
        for kind, characters in ENTITIES.items():
            places = "B" + "M" * int(rng.integers(0, 3)) + "E"
            lines += [f"{rng.choice(list(characters))} {place}-{kind}" for place in places]
            lines += [f"{character} O" for character in rng.choice(list(REST), int(rng.integers(1, 4)))]
    return lines
