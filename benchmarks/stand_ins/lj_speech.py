"""Sentences with the mel and the linear spectrograms of their reading, prepared as speech synthesis reads LJSpeech."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SENTENCES, MELS, MAGNITUDES = 40, 80, 129
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "sleeps")


def write(folder: Path) -> None:
    """``metadata.csv`` with ``NAME|text|text`` and, in ``wavs``, ``NAME.pt.npy`` (frames, 80) and ``NAME.mag.npy``
    (frames, 129)."""
    rng = np.random.default_rng(0)
    (folder / "wavs").mkdir()
    lines = []
    for number in range(SENTENCES):
        name = f"LJ001-{number:04}"
        words = rng.choice(WORDS, 3 + number % 4)
        text = " ".join(words)
        lines.append(f"{name}|{text}|{text}\n")
        pitch = np.repeat([WORDS.index(word) + 1 for word in words], 5)[:, None]
        for kind, width in (("pt", MELS), ("mag", MAGNITUDES)):
            spectrum = 0.5 + 0.4 * np.sin(pitch * np.arange(width) / 20) + 0.05 * rng.normal(size=(len(pitch), width))
            np.save(folder / "wavs" / f"{name}.{kind}.npy", spectrum.clip(0, 1).astype("float32"))
    (folder / "metadata.csv").write_text("".join(lines))
