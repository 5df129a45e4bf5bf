"""The pictures of ``voc`` and what lies in them as lists, as a detector of the SSD kind reads them."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from . import voc
from ._boxes import boxes

COUNT = 12


def write(folder: Path) -> None:
    """``TRAIN_images.json``, names seen from the folder ``VOCdevkit``, and ``TRAIN_objects.json`` with the boxes (from
    0), labels (from 1) and difficulties of each."""
    with TemporaryDirectory() as made:
        voc.write(Path(made))
        found = list(boxes(Path(made), COUNT))
    pictures = [f"VOC2012/JPEGImages/{name}.jpg" for name, _, _ in found]
    objects = [
        {"boxes": [[edge - 1 for edge in box]], "labels": [kind + 1], "difficulties": [0]} for _, kind, box in found
    ]
    (folder / "TRAIN_images.json").write_text(json.dumps(pictures))
    (folder / "TRAIN_objects.json").write_text(json.dumps(objects))
