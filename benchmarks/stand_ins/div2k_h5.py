"""DIV2K in HDF5 in two sizes, and Urban100 as pictures, as CARN reads them."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np

from ._pictures import save
from .super_resolution_h5 import waves

TESTED = 3


def write(folder: Path) -> None:
    """``DIV2K_train.h5``: ``HR/NUMBER`` and ``X2/NUMBER``, half as large; ``Urban100/x2/NUMBER_HR.png`` and ``_LR``."""
    pictures = waves(np.random.default_rng(0), 64, 64, 3)
    with h5py.File(folder / "DIV2K_train.h5", "w") as file:
        for number, picture in enumerate(pictures[TESTED:]):
            file[f"HR/{number}"], file[f"X2/{number}"] = picture, picture[::2, ::2]
    for number, picture in enumerate(pictures[:TESTED]):
        save(folder / "Urban100" / "x2" / f"{number}_HR.png", picture)
        save(folder / "Urban100" / "x2" / f"{number}_LR.png", picture[::2, ::2])
