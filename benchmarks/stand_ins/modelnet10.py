"""ModelNet10's objects: meshes of triangles, sorted into folders by what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

KINDS = ("bathtub", "bed", "chair")
COUNTS = {"train": 12, "test": 5}
TRIANGLES = 12


def write(folder: Path) -> None:
    """``KIND/train/KIND_0001.off``: OFF, the numbers of corners and triangles, and a line for each of them."""
    rng = np.random.default_rng(0)
    for stretch, kind in enumerate(KINDS, 1):
        number = 0
        for part, count in COUNTS.items():
            (folder / kind / part).mkdir(parents=True)
            for _ in range(count):
                number += 1
                corners = rng.normal(size=(3 * TRIANGLES, 3)) * (1, 1, stretch)
                lines = ["OFF", f"{len(corners)} {TRIANGLES} 0"]
                lines += [" ".join(f"{value:.4f}" for value in corner) for corner in corners]
                lines += [f"3 {3 * each} {3 * each + 1} {3 * each + 2}" for each in range(TRIANGLES)]
                (folder / kind / part / f"{kind}_{number:04d}.off").write_text("\n".join(lines) + "\n")
