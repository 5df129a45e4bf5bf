"""The pictures of ``voc`` with a text file of boxes for each, as a detector of the YOLO kind reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from . import voc
from ._boxes import boxes

COUNTS = {"100examples": 20, "test": 8}
SIDE = 97


def write(folder: Path) -> None:
    """``100examples.csv`` and ``test.csv`` with the columns img and label, ``images/NAME.jpg`` and ``labels/NAME.txt``,
    a line of kind, centre, width and height (as shares of the picture) for each thing."""
    for name in ("images", "labels"):
        (folder / name).mkdir()
    with TemporaryDirectory() as made:
        voc.write(Path(made))
        found = list(boxes(Path(made), sum(COUNTS.values())))
        for name, kind, box in found:
            left, top, right, bottom = (edge / SIDE for edge in box)
            centre = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
            line = " ".join([str(kind), *(f"{share:.4f}" for share in centre)])
            (folder / "labels" / f"{name}.txt").write_text(line + "\n")
            shutil.copy(Path(made) / "VOC2012" / "JPEGImages" / f"{name}.jpg", folder / "images")
    rows = [f"{name}.jpg,{name}.txt" for name, _, _ in found]
    for table, count in COUNTS.items():
        part, rows = rows[:count], rows[count:]
        (folder / f"{table}.csv").write_text("\n".join(["img,label", *part]) + "\n")
