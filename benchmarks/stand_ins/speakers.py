"""Mel spectrograms by speaker, as models that tell speakers apart (GE2E) or change voices (AutoVC) read them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

SPEAKERS, UTTERANCES, FRAMES, MELS, EMBEDDING = 16, 8, 180, 40, 256


def write(folder: Path) -> None:
    """``train_tisv/speakerN.npy``: utterances, mels, frames. ``spmel/train.pkl`` and a folder a speaker: frames, 80."""
    rng = np.random.default_rng(0)
    (folder / "train_tisv").mkdir()
    speakers = []
    for number in range(SPEAKERS):
        voice = np.sin(np.arange(2 * MELS) * (number + 1) / 10)
        spoken = voice[None, :, None] + 0.3 * rng.normal(size=(UTTERANCES, 2 * MELS, FRAMES))
        np.save(folder / "train_tisv" / f"speaker{number}.npy", spoken[:, :MELS].astype("float32"))
        home = folder / "spmel" / f"p{number}"
        home.mkdir(parents=True)
        files = []
        for utterance in range(2):
            np.save(home / f"{utterance}.npy", spoken[utterance].T.astype("float32"))
            files.append(f"p{number}/{utterance}.npy")
        speakers.append([f"p{number}", rng.normal(size=EMBEDDING).astype("float32"), *files])
    (folder / "spmel" / "train.pkl").write_bytes(pickle.dumps(speakers))
