"""Short messages that are advertisements or not, as the SMS Spam Collection lists them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = {"ham": "see you at home later and call me when the train is late ok thanks love".split()}
WORDS["spam"] = "win a free prize now call this number to claim your cash reward today only txt stop".split()
COUNT = 96


def write(folder: Path) -> None:
    """``SMSSpamCollection.tsv``: label, a tab and the message; more of them are none."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(COUNT):
        label = "spam" if number % 3 == 0 else "ham"
        lines.append(f"{label}\t{' '.join(rng.choice(WORDS[label], rng.integers(4, 12)))}")
    (folder / "SMSSpamCollection.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
