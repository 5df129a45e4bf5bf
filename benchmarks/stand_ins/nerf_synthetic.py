"""A ball seen from all around, as the pictures and cameras of Blender's synthetic scenes for NeRF."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.stand_ins import _pictures

SIDE = 20
FAR = 4.0
VIEWS = {"train": 24, "val": 8, "test": 8}


def write(folder: Path) -> None:
    """``chair/transforms_SPLIT.json`` with ``camera_angle_x`` and ``frames`` (``file_path`` and the 4 x 4
    ``transform_matrix`` from the camera to the world), and the pictures ``chair/SPLIT/r_NUMBER.png``."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    for split, views in VIEWS.items():
        frames = []
        for number, angle in enumerate(2 * np.pi * (np.arange(views) + 0.5 * (split != "train")) / views):
            cos, sin = float(np.cos(angle)), float(np.sin(angle))
            image = np.zeros((SIDE, SIDE, 3), np.uint8)
            image[np.hypot(x - SIDE / 2 - 3 * cos, y - SIDE / 2) < 4] = (230, int(100 + 75 * cos), 50)
            _pictures.save(folder / "chair" / split / f"r_{number}.png", image)
            pose = [[cos, 0, sin, FAR * sin], [0, 1, 0, 0], [-sin, 0, cos, FAR * cos], [0, 0, 0, 1]]
            frames.append({"file_path": f"./{split}/r_{number}", "transform_matrix": pose})
        cameras = {"camera_angle_x": 0.7, "frames": frames}
        (folder / "chair" / f"transforms_{split}.json").write_text(json.dumps(cameras), encoding="utf-8")
