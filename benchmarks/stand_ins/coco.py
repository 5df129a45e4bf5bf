"""COCO: pictures, and a table of the things in each with their boxes and outlines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ._pictures import save

KINDS = 4
SIZE = (96, 128)
"""Height and width."""


def write(folder: Path) -> None:
    """``train2017/`` and ``val2017/`` with ``NUMBER.jpg``, ``annotations/instances_PART.json`` and, as some projects
    list things, ``PART.txt``: a picture's name and for each thing ``LEFT TOP RIGHT BOTTOM KIND`` in a line. Each thing
    is a rectangle in the colour of its kind."""
    (folder / "annotations").mkdir()
    for part, count, seed in (("train2017", 32, 0), ("val2017", 16, 1)):
        table = _part(folder / part, count, np.random.default_rng(seed))
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(table))
        (folder / f"{part}.txt").write_text("\n".join(_lines(table)) + "\n")


def _part(folder: Path, count: int, rng: np.random.Generator) -> dict[str, Any]:
    images: list[dict[str, Any]] = []
    things: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        pixels = rng.integers(0, 60, (*SIZE, 3), dtype=np.uint8)
        for kind in rng.integers(0, KINDS, 2):
            width, height = (int(each) for each in rng.integers(24, 48, 2))
            left, top = int(rng.integers(0, SIZE[1] - width)), int(rng.integers(0, SIZE[0] - height))
            pixels[top : top + height, left : left + width] = np.eye(4, 3)[kind] * 180 + 40
            right, bottom = left + width, top + height
            things.append(
                {
                    "id": len(things) + 1,
                    "image_id": number,
                    "category_id": int(kind) + 1,
                    "bbox": [left, top, width, height],
                    "area": width * height,
                    "iscrowd": 0,
                    "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
                }
            )
        name = f"{number:012d}.jpg"
        save(folder / name, pixels)
        images.append({"id": number, "file_name": name, "height": SIZE[0], "width": SIZE[1]})
    kinds = [{"id": kind + 1, "name": f"kind_{kind + 1}", "supercategory": "thing"} for kind in range(KINDS)]
    return {"images": images, "annotations": things, "categories": kinds}


def _lines(table: dict[str, Any]) -> list[str]:
    lines = []
    for image in table["images"]:
        fields = [image["file_name"]]
        for thing in table["annotations"]:
            if thing["image_id"] == image["id"]:
                left, top, width, height = thing["bbox"]
                fields += map(str, (left, top, left + width, top + height, thing["category_id"] - 1))
        lines.append(" ".join(fields))
    return lines
