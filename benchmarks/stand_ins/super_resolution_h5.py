"""Pictures and smaller versions of them in HDF5, as ESPCN, RDN and VDSR read them."""

from __future__ import annotations

from pathlib import Path

import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np


def write(folder: Path) -> None:
    """``espcn_train.h5`` with the arrays ``hr`` and ``lr`` (a third as large), ``espcn_eval.h5``, ``rdn_train.h5`` and
    ``rdn_eval.h5`` with groups of them by number (RDN: coloured, half as large), ``vdsr.h5`` with ``data`` and
    ``label`` (count x 1 x 41 x 41, from 0 to 1)."""
    rng = np.random.default_rng(0)
    grey = waves(rng, 96, 51, 1)[..., 0].astype(np.float32)
    with h5py.File(folder / "espcn_train.h5", "w") as file:
        file["hr"], file["lr"] = grey, grey[:, 1::3, 1::3]
    _groups(folder / "espcn_eval.h5", waves(rng, 4, 60, 1)[..., 0].astype(np.float32), slice(1, None, 3))
    for part, count in {"train": 40, "eval": 4}.items():
        _groups(folder / f"rdn_{part}.h5", waves(rng, count, 48, 3), slice(None, None, 2))
    patches = waves(rng, 72, 41, 1).transpose(0, 3, 1, 2).astype(np.float32) / 255
    with h5py.File(folder / "vdsr.h5", "w") as file:
        file["label"], file["data"] = patches, patches.round(1)


def _groups(path: Path, pictures: np.ndarray, smaller: slice) -> None:
    with h5py.File(path, "w") as file:
        for number, picture in enumerate(pictures):
            file[f"hr/{number}"], file[f"lr/{number}"] = picture, picture[smaller, smaller]


def waves(rng: np.random.Generator, count: int, side: int, channels: int) -> np.ndarray:
    """Stripes of other widths in each picture and channel (count x side x side x channels, uint8)."""
    y, x = (places[None, :, :, None] for places in np.mgrid[:side, :side] / side)
    down, across = rng.uniform(1, 8, (2, count, 1, 1, channels))
    start, noise = rng.uniform(0, 6, (count, 1, 1, channels)), rng.normal(0, 6, (count, side, side, channels))
    return (
        np.asarray(127 + 90 * np.sin(6 * across * x + start) * np.cos(6 * down * y) + noise)
        .clip(0, 255)
        .astype(np.uint8)
    )
