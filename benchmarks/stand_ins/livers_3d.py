"""Volumes of livers, as LiTS gives them: CT in sixteen bits, and what is liver, in MetaImage's format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SLICES, SIDE = 24, 32
TRAIN, VALIDATION = 16, 4


def write(folder: Path) -> None:
    """``ct/volume-N.mha``, ``label/segmentation-N.mha``, and lists of which to train with and to evaluate."""
    rng = np.random.default_rng(0)
    z, y, x = np.mgrid[0:SLICES, 0:SIDE, 0:SIDE]
    (folder / "ct").mkdir()
    (folder / "label").mkdir()
    lines = []
    for number in range(TRAIN + VALIDATION):
        middle = rng.uniform(8, 16, 3)
        liver = (z - middle[0]) ** 2 + (y - middle[1]) ** 2 + (x - middle[2]) ** 2 < rng.integers(30, 60)
        shade = np.where(liver, 120, -60) + rng.normal(0, 40, liver.shape)
        lines.append(f"livers/ct/volume-{number}.mha livers/label/segmentation-{number}.mha\n")
        _write(folder / f"ct/volume-{number}.mha", "MET_SHORT", shade.astype("<i2"))
        _write(folder / f"label/segmentation-{number}.mha", "MET_UCHAR", liver.astype("u1"))
    (folder / "train_path_list.txt").write_text("".join(lines[:TRAIN]))
    (folder / "val_path_list.txt").write_text("".join(lines[TRAIN:]))


def _write(path: Path, kind: str, voxels: np.ndarray) -> None:
    sizes = " ".join(str(size) for size in reversed(voxels.shape))
    header = f"ObjectType = Image\nNDims = 3\nDimSize = {sizes}\nElementType = {kind}\nElementDataFile = LOCAL\n"
    path.write_bytes(header.encode() + voxels.tobytes())
