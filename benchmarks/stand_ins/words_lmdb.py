"""Pictures of words in LMDB, as CRNN reads them: what ``synth90k`` draws."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ._lmdb import write_lmdb
from .synth90k import SIZE, WORDS

COUNTS = {"train": 64, "val": 16}


def write(folder: Path) -> None:
    """``train`` and ``val``: ``num-samples``, and from 1 on ``image-%09d`` (a PNG) and ``label-%09d``."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        values = {"num-samples": str(count).encode()}
        for number, word in enumerate(rng.integers(0, len(WORDS), count), 1):
            picture = Image.new("L", SIZE, int(rng.integers(0, 60)))
            ImageDraw.Draw(picture).text((6, 4), WORDS[word], fill=int(rng.integers(160, 255)))
            with io.BytesIO() as file:
                picture.save(file, "PNG")
                values[f"image-{number:09d}"] = file.getvalue()
            values[f"label-{number:09d}"] = WORDS[word].encode()
        (folder / part).mkdir()
        write_lmdb(folder / part, values)
