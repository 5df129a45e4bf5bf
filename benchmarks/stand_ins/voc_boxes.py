"""The pictures of ``voc`` and lists of the boxes in each, a line a picture, as YOLO v1 reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from . import voc
from ._boxes import boxes

COUNTS = {"voc2007": 12, "voc2012": 12, "voc2007test": 8}


def write(folder: Path) -> None:
    """``allimgs/NAME.jpg``, and ``voc2007.txt``, ``voc2012.txt`` and ``voc2007test.txt``: name, and four edges and the
    number of the kind for each thing."""
    (folder / "allimgs").mkdir()
    lines: dict[str, str] = {}
    with TemporaryDirectory() as made:
        voc.write(Path(made))
        for name, kind, box in boxes(Path(made), sum(COUNTS.values())):
            lines[name] = lines.get(name, f"{name}.jpg") + "".join(f" {number}" for number in (*box, kind))
            shutil.copy(Path(made) / "VOC2012" / "JPEGImages" / f"{name}.jpg", folder / "allimgs")
    rows = iter(lines.values())
    for table, count in COUNTS.items():
        part = [next(rows) for _ in range(count)]
        (folder / f"{table}.txt").write_text("\n".join(part) + "\n")
