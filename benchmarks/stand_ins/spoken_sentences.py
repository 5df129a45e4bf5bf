"""Sentences and their reading as sound, as LJSpeech is published."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

SENTENCES, RATE = 40, 8000
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "sleeps")


def write(folder: Path) -> None:
    """``metadata.csv`` with ``NAME|text|text`` and ``wavs/NAME.wav`` (8 kHz, 16 bits): a tone for each word."""
    rng = np.random.default_rng(0)
    (folder / "wavs").mkdir()
    lines = []
    for number in range(SENTENCES):
        name = f"LJ001-{number:04}"
        words = rng.choice(WORDS, 3 + number % 3)
        text = " ".join(words)
        lines.append(f"{name}|{text}|{text}\n")
        pitches = np.repeat([100 + 50 * WORDS.index(word) for word in words], RATE // 20)
        sound = 8000 * np.sin(2 * np.pi * np.cumsum(pitches) / RATE) + rng.normal(0, 200, len(pitches))
        with wave.open(str(folder / "wavs" / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
            file.writeframes(sound.astype("<i2").tobytes())
    (folder / "metadata.csv").write_text("".join(lines))
