"""The text of plays, as scripts for language models of characters read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

LINES = 400
SPEECHES = (
    "O God, O God!",
    "What say you, my lord?",
    "I know not what to think.",
    "Speak, and be brief.",
    "The night is long, the day is far away;",
    "He comes, he comes: stand by.",
)
SPEAKERS = ("FIRST LORD", "SECOND LORD", "QUEEN", "FOOL")


def write(folder: Path) -> None:
    """``input.txt``: speeches, each under the name of its speaker."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    lines = [f"{rng.choice(SPEAKERS)}:\n{rng.choice(SPEECHES)}\n" for _ in range(LINES)]
    (folder / "input.txt").write_text("\n".join(lines))
