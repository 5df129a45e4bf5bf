"""Pictures of rooms with the depth of each point, a file each, laid out as NYU Depth V2 is for sparse-to-dense."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

HEIGHT, WIDTH = 480, 640
COUNTS = {"train": 16, "val": 3}


def write(folder: Path) -> None:
    """``train/room/NUMBER.h5`` and ``val/room/NUMBER.h5`` with ``rgb`` (3 x 480 x 640) and ``depth`` (480 x 640)."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for split, count in COUNTS.items():
        room = folder / split / "room"
        room.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            slopes = rng.uniform(0.5, 2, size=2)
            depth = 1 + slopes[0] * rows / HEIGHT + slopes[1] * columns / WIDTH
            rgb = np.stack([60 * depth, 40 * depth, 255 - 50 * depth]).clip(0, 255)
            with h5py.File(room / f"{number:05}.h5", "w") as file:
                file["rgb"] = rgb.astype(np.uint8)
                file["depth"] = depth.astype(np.float32)
