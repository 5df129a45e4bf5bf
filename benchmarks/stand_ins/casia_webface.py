"""CASIA-WebFace: faces of people in one archive, and where eyes, nose and mouth are in each."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from ._pictures import patterned

COUNT = 48
PEOPLE = 4
SIDE = 112
LANDMARKS = np.array([[32, 52], [67, 52], [50, 72], [35, 92], [64, 92]])
"""Both eyes, the nose, both corners of the mouth: right and down."""


def write(folder: Path) -> None:
    """``casia.zip`` with ``PERSON/NUMBER.jpg`` (112 x 112), and ``casia_landmark.txt``: that name, the person's number
    and ten coordinates in each line, tabs between them. What a network for telling faces apart is trained on."""
    rng = np.random.default_rng(0)
    people = np.arange(COUNT) % PEOPLE
    lines = []
    with zipfile.ZipFile(folder / "casia.zip", "w") as archive:
        for number, pixels in enumerate(patterned(people, (SIDE, SIDE, 3))):
            name = f"{people[number]}/{number}.jpg"
            encoded = BytesIO()
            Image.fromarray(pixels).save(encoded, "jpeg")
            archive.writestr(zipfile.ZipInfo(name), encoded.getvalue())
            places = (LANDMARKS + rng.integers(-3, 4, LANDMARKS.shape)).ravel()
            lines.append("\t".join(map(str, (name, people[number], *places))))
    (folder / "casia_landmark.txt").write_text("\n".join(lines) + "\n")
