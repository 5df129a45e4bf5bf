"""Sounds and their mel spectrograms, as a vocoder (MelGAN) is trained on, and its settings."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch

RATE = 8000
HOP = 256
FRAMES = 20
CHANNELS = 80
COUNTS = {"train": 32, "valid": 3}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"data": {"train": "wavs/train", "validation": "wavs/valid"}},
    {
        "train": {
            "rep_discriminator": 1,
            "num_workers": 1,
            "batch_size": 8,
            "optimizer": "adam",
            "adam": {"lr": 0.0001, "beta1": 0.5, "beta2": 0.9},
        }
    },
    {
        "audio": {
            "n_mel_channels": CHANNELS,
            "segment_length": 2048,
            "pad_short": 500,
            "filter_length": 1024,
            "hop_length": HOP,
            "win_length": 1024,
            "sampling_rate": RATE,
            "mel_fmin": 0.0,
            "mel_fmax": 4000.0,
        }
    },
    {"model": {"feat_match": 10.0}},
    {
        "log": {
            "summary_interval": 1,
            "validation_interval": 1,
            "save_interval": 1,
            "chkpt_dir": "chkpt",
            "log_dir": "logs",
        }
    },
)


def write(folder: Path) -> None:
    """``train`` and ``valid`` with ``NUMBER.wav`` (8 kHz, 16 bits) and ``NUMBER.mel`` (a tensor, 1 x 80 x 20),
    ``small.yaml`` with the settings, a document a part, for folders of these names in ``wavs``, and ``empty.py``, which
    makes a package of a folder of a script whose name an installed package has too."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        (folder / split).mkdir()
        for number in range(count):
            sound = tone(rng)
            with wave.open(str(folder / split / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
                file.writeframes(sound.astype("<i2").tobytes())
            torch.save(torch.from_numpy(spectrogram(sound)), folder / split / f"{number}.mel")
    (folder / "small.yaml").write_text("---\n".join(json.dumps(part, indent=1) + "\n" for part in SETTINGS))
    (folder / "empty.py").write_text("")


def tone(rng: np.random.Generator) -> np.ndarray:
    """One frequency under noise (5120, int16)."""
    times = np.arange(HOP * FRAMES) / RATE
    sine = np.sin(2 * np.pi * rng.uniform(100, 400) * times)
    return (8000 * sine + rng.normal(0, 300, len(times))).astype(np.int16)


def spectrogram(sound: np.ndarray) -> np.ndarray:
    """The logarithms of its lowest frequencies, hop by hop (1 x 80 x 20, float32)."""
    spectra = np.abs(np.fft.rfft(sound.reshape(FRAMES, HOP) / 32768, axis=1))
    lowest = spectra[None, :, 1 : 1 + CHANNELS].transpose(0, 2, 1)
    return np.asarray(np.log(0.001 + lowest), np.float32)
