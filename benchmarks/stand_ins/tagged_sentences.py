"""Sentences with a tag for each word, prepared as numbers of characters and words (lstm-crf-pytorch)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENTENCES, SPECIAL = 64, ["<PAD>", "<SOS>", "<EOS>", "<UNK>"]
TAGS = {"N": ["dog", "cat", "tree"], "V": ["sees", "eats", "finds"], "D": ["the", "a", "one"]}


def write(folder: Path) -> None:
    """``train``, ``train.csv``, ``train.char_to_idx``, ``train.word_to_idx`` and ``train.tag_to_idx``."""
    rng = np.random.default_rng(0)
    words = [word for chosen in TAGS.values() for word in chosen]
    letters = SPECIAL + sorted(set("".join(words)))
    vocabulary, tags = SPECIAL + words, [*SPECIAL[:3], *TAGS]
    sentences = []
    for _ in range(SENTENCES):
        order = "DNVDN" * int(rng.integers(1, 3))
        sentences.append([(str(rng.choice(TAGS[tag])), tag) for tag in order])
    sentences.sort(key=lambda sentence: -len(sentence))
    (folder / "train").write_text("".join(" ".join(f"{w}/{t}" for w, t in one) + "\n" for one in sentences))
    lines = []
    for sentence in sentences:
        left = (
            "+".join(str(letters.index(letter)) for letter in word) + f":{vocabulary.index(word)}"
            for word, _ in sentence
        )
        lines.append(" ".join(left) + "\t" + " ".join(str(tags.index(tag)) for _, tag in sentence))
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    for name, entries in {"char": letters, "word": vocabulary, "tag": tags}.items():
        (folder / f"train.{name}_to_idx").write_text("".join(f"{entry}\n" for entry in entries))
