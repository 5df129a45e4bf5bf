"""Questions on pictures as lists of words, as a small model of VQA reads them once its inputs are built."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save_all

SIZE = 32
COUNTS = {"train": 48, "valid": 16}
WORDS = "what is the colour of this animal".split()
ANSWERS = ["<unk>", "red", "green", "blue", "white"]


def write(folder: Path) -> None:
    """``train.npy`` and ``valid.npy``, arrays of dicts whose ``image_path`` starts with ``datasets``, the pictures, and
    ``vocab_questions.txt`` and ``vocab_answers.txt``, a word in each line."""
    rng = np.random.default_rng(0)
    (folder / "vocab_questions.txt").write_text("\n".join(["<pad>", "<unk>", *WORDS]) + "\n")
    (folder / "vocab_answers.txt").write_text("\n".join(ANSWERS) + "\n")
    for part, count in COUNTS.items():
        paths = save_all(folder / "pictures" / part, count, (SIZE, SIZE), seed=len(part))
        asked = [
            {
                "image_path": f"datasets/{path.relative_to(folder).as_posix()}",
                "question_tokens": rng.choice(WORDS, rng.integers(3, 7)).tolist(),
                "valid_answers": [ANSWERS[1 + number % 4]],
            }
            for number, path in enumerate(paths)
        ]
        np.save(folder / f"{part}.npy", np.array(asked, dtype=object), allow_pickle=True)
