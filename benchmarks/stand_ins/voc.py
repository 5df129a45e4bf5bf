"""VOC2012 for segmentation and detection: a coloured square on noise, and where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ._pictures import save

NAME = "VOCdevkit"
COUNT = 64
SIDE = 40
KINDS = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep "
    "sofa train tvmonitor"
).split()


def write(folder: Path) -> None:
    """``VOC2012/JPEGImages`` (96 x 96 pixels), ``SegmentationClass`` (with a palette) and ``Annotations``, 20 classes;
    lists of names in ``ImageSets/Segmentation`` and, with a ``test.txt`` as VOC2007 has, in ``ImageSets/Main``."""
    base = folder / "VOC2012"
    for name in ("Annotations", "SegmentationClass"):
        (base / name).mkdir(parents=True)
    rng = np.random.default_rng(3)
    names = [f"2007_{number:06d}" for number in range(COUNT)]
    for name in names:
        mask = np.zeros((96, 96), np.uint8)
        label, x, y = rng.integers(1, 21), *rng.integers(0, 48, 2)
        mask[y : y + SIDE, x : x + SIDE] = label
        noise = rng.integers(0, 64, (96, 96, 3)).astype(np.uint8)
        save(base / "JPEGImages" / f"{name}.jpg", noise + mask[..., None] * np.uint8(8))
        coloured = Image.fromarray(mask)
        coloured.putpalette(_palette())
        coloured.save(base / "SegmentationClass" / f"{name}.png")
        (base / "Annotations" / f"{name}.xml").write_text(_annotation(name, KINDS[label - 1], int(x) + 1, int(y) + 1))
    cut = COUNT * 4 // 5
    parts = {"train": names[:cut], "val": names[cut:], "trainval": names}
    for task, lists in {"Segmentation": parts, "Main": {**parts, "test": names[cut:]}}.items():
        (base / "ImageSets" / task).mkdir(parents=True)
        for split, part in lists.items():
            (base / "ImageSets" / task / f"{split}.txt").write_text("\n".join(part) + "\n")


def _palette() -> bytes:
    """The colours of VOC: of three bits of a label one goes to red, one to green, one to blue, the lowest first."""
    bits = np.arange(256)[:, None] >> np.arange(24) & 1
    colours = (bits.reshape(256, 8, 3) << np.arange(7, -1, -1)[:, None]).sum(1)
    return np.asarray(colours, np.uint8).tobytes()


def _annotation(name: str, kind: str, left: int, top: int) -> str:
    """One thing and its box, whose pixels are counted from 1."""
    edges = {"xmin": left, "ymin": top, "xmax": left + SIDE - 1, "ymax": top + SIDE - 1}
    box = "".join(f"<{edge}>{place}</{edge}>" for edge, place in edges.items())
    return (
        f"<annotation><filename>{name}.jpg</filename><size><width>96</width><height>96</height><depth>3</depth></size>"
        f"<object><name>{kind}</name><truncated>0</truncated><difficult>0</difficult><bndbox>{box}</bndbox></object>"
        "</annotation>\n"
    )
