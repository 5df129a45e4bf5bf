"""Pictures of several sizes in an LMDB, as a StyleGAN that grows while it is trained reads them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from ._figures import figure
from ._lmdb import write_lmdb

COUNT = 96
SIDES = (8, 16, 32)


def write(folder: Path) -> None:
    """``data.mdb`` with a JPEG for each ``SIDE-NUMBER`` (8, 16 and 32 pixels, five digits), and how many pictures there
    are, in digits, for ``length``."""
    rng = np.random.default_rng(0)
    values = {"length": str(COUNT).encode()}
    for number in range(COUNT):
        pixels, _ = figure(rng, max(SIDES), square=number % 2 == 1)
        for side in SIDES:
            encoded = BytesIO()
            Image.fromarray(pixels).resize((side, side)).save(encoded, "jpeg")
            values[f"{side}-{number:05d}"] = encoded.getvalue()
    write_lmdb(folder, values)
