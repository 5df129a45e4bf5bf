"""What lies where in the pictures of ``voc``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from .voc import KINDS


def boxes(voc: Path, count: int) -> Iterator[tuple[str, int, list[int]]]:
    """Name, number of the kind and box (left, top, right, bottom, from 1) of each of the first pictures."""
    for path in sorted((voc / "VOC2012" / "Annotations").iterdir())[:count]:
        for thing in ElementTree.parse(path).getroot().iter("object"):
            edges = (thing.findtext(f"bndbox/{edge}", "0") for edge in ("xmin", "ymin", "xmax", "ymax"))
            yield path.stem, KINDS.index(thing.findtext("name", "")), [int(edge) for edge in edges]
