"""ShapeNet's parts: clouds of points, each point with the part of the thing that it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

KINDS = {"Airplane": "02691156", "Bag": "02773838", "Chair": "03001627"}
COUNT = 24
"""Of each kind, a third of them for testing."""
POINTS = 200


def write(folder: Path) -> None:
    """``synsetoffset2category.txt``, ``train_test_split/shuffled_PART_file_list.json``, ``KIND/points/NAME.pts`` with
    three numbers a line and ``KIND/points_label/NAME.seg`` with one, from 1."""
    rng = np.random.default_rng(0)
    parts: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for kind, offset in enumerate(KINDS.values()):
        for number in range(COUNT):
            labels = rng.integers(0, 2, POINTS)
            cloud = rng.normal(size=(POINTS, 3)) * (1.0 + kind, 1.0, 0.5) + labels[:, None]
            for inside, suffix, table in (("points", "pts", cloud), ("points_label", "seg", labels + 1)):
                path = folder / offset / inside / f"{number:04d}.{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                np.savetxt(path, table, fmt="%.5f" if suffix == "pts" else "%d")
            part = "train" if number % 3 else "test"
            parts[part].append(f"shape_data/{offset}/{number:04d}")
    parts["val"] = parts["test"]
    (folder / "synsetoffset2category.txt").write_text("".join(f"{name}\t{KINDS[name]}\n" for name in KINDS))
    (folder / "train_test_split").mkdir()
    for part, names in parts.items():
        (folder / "train_test_split" / f"shuffled_{part}_file_list.json").write_text(json.dumps(names))
