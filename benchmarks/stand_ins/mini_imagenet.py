"""miniImageNet: pictures in one folder, with a table for each part that names their kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

KINDS = 5
EACH = 16
PARTS = ("train", "val", "test")


def write(folder: Path) -> None:
    """``images/NAME.jpg`` (84 x 84) and ``train.csv``, ``val.csv``, ``test.csv`` with ``filename,label``, kind after
    kind; the parts have no kind in common."""
    for part, name in enumerate(PARTS):
        kinds = part * KINDS + np.arange(KINDS * EACH) // EACH
        rows = ["filename,label"]
        for number, pixels in enumerate(patterned(kinds, (84, 84, 3), seed=part)):
            kind = f"n{kinds[number]:08d}"
            rows.append(f"{kind}{number:08d}.jpg,{kind}")
            save(folder / "images" / f"{kind}{number:08d}.jpg", pixels)
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
