"""Filter banks of what speakers said, a pickle an utterance, as networks that tell speakers apart read them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

SPEAKERS, UTTERANCES, BANKS = 6, 12, 40


def write(folder: Path) -> None:
    """``train/SPEAKER/NUMBER.p``: ``feat`` (frames, 40), of another length each, and ``label``."""
    rng = np.random.default_rng(0)
    for number in range(SPEAKERS):
        name = f"speaker{number}"
        home = folder / "train" / name
        home.mkdir(parents=True)
        voice = np.sin(np.arange(BANKS) * (number + 1) / 7)
        for utterance in range(UTTERANCES):
            frames = 210 + 7 * utterance
            spoken = voice + 0.5 * rng.normal(size=(frames, BANKS))
            content = {"feat": spoken.astype("float32"), "label": name}
            (home / f"{utterance}.p").write_bytes(pickle.dumps(content))
