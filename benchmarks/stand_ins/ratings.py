"""Photographs and how many people gave each of ten marks, as AVA is prepared: `images/ID.jpg`, `train_labels.csv`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save_all


def write(folder: Path) -> None:
    """48 to train on, 16 to validate and 8 to test, 72 x 64 pixels; a row is an ID and ten shares that sum to one."""
    rng = np.random.default_rng(0)
    ids = [str(number) for number in range(1, 73)]
    for name, path in zip(ids, save_all(folder / "images", 72, (72, 64)), strict=True):
        path.rename(path.with_stem(name))
    for split, some in (("train", ids[:48]), ("val", ids[48:64]), ("test", ids[64:])):
        rows = [",".join(["image_id", *(f"rating{mark}" for mark in range(1, 11))])]
        for name in some:
            rows.append(",".join([name, *(f"{share:.6f}" for share in rng.dirichlet(np.ones(10)))]))
        (folder / f"{split}_labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
