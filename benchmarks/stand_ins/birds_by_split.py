"""Pictures in a folder for each kind, and which kinds are to train on, to validate and to test with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ._pictures import patterned, save

KINDS = {"train": range(6), "val": range(6, 9), "test": range(9, 12)}


def write(folder: Path) -> None:
    """``train.json`` and so on name kinds and their folders, as seen from where this is ``data/birds``."""
    for split, kinds in KINDS.items():
        names = [f"kind_{kind:02d}" for kind in kinds]
        for kind, name in zip(kinds, names, strict=True):
            for number, pixels in enumerate(patterned(np.full(10, kind), (40, 40, 3), kind)):
                save(folder / "images" / name / f"{number}.jpg", pixels)
        listed = {"class_names": names, "class_roots": [f"./data/birds/images/{name}" for name in names]}
        (folder / f"{split}.json").write_text(json.dumps(listed))
