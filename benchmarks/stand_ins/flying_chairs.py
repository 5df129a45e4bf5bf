"""FlyingChairs: pairs of pictures, and how far each pixel moves from the first to the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

COUNT = 12
WIDTH, HEIGHT = 192, 160


def write(folder: Path) -> None:
    """``NUMBER_img1.ppm``, ``NUMBER_img2.ppm`` and ``NUMBER_flow.flo``: mark, width, height, then x and y."""
    rng = np.random.default_rng(0)
    for number in range(1, COUNT + 1):
        right, down = rng.integers(-6, 7, 2)
        coarse = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
        first = coarse.repeat(8, axis=0).repeat(8, axis=1)
        save(folder / f"{number:05d}_img1.ppm", first)
        save(folder / f"{number:05d}_img2.ppm", np.roll(first, (down, right), axis=(0, 1)))
        flow = np.full((HEIGHT, WIDTH, 2), (right, down), np.float32)
        head = np.float32(202021.25).tobytes() + np.array([WIDTH, HEIGHT], np.int32).tobytes()
        (folder / f"{number:05d}_flow.flo").write_bytes(head + flow.tobytes())
