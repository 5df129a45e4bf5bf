"""Beats of a heart that were cut out of a long record, a file each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

KINDS, LENGTH = ("N", "V", "A", "R"), 128
COUNTS = {"train": 64, "val": 24}


def write(folder: Path) -> None:
    """``train.json`` and ``val.json`` with path and label, ``class-mapper.json``, and the beats as arrays."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        listed = []
        for number in range(count):
            kind = int(rng.integers(0, len(KINDS)))
            beat = np.exp(-((np.arange(LENGTH) - 64) ** 2) / (10 + 60 * kind)) + 0.1 * rng.normal(size=LENGTH)
            np.save(folder / f"{part}-{number}.npy", beat)
            listed.append({"label": KINDS[kind], "path": f"data/{part}-{number}.npy"})
        (folder / f"{part}.json").write_text(json.dumps(listed))
    (folder / "class-mapper.json").write_text(json.dumps({kind: number for number, kind in enumerate(KINDS)}))
