"""Faces and how old people took them for, as APPA-REAL is given: ``gt_avg_SPLIT.csv`` and ``SPLIT/NAME_face.jpg``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save_all


def write(folder: Path) -> None:
    """40 to train on, 16 to validate and 8 to test, 64 x 64 pixels."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 40), ("valid", 16), ("test", 8)):
        rows = ["file_name,num_ratings,apparent_age_avg,apparent_age_std,real_age"]
        for path in save_all(folder / split, count, (64, 64)):
            path.rename(path.with_name(f"{path.name}_face.jpg"))
            age = rng.uniform(5, 80)
            rows.append(f"{path.name},38,{age:.6f},{rng.uniform(1, 5):.6f},{int(age)}")
        (folder / f"gt_avg_{split}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
