"""Melanoma classification, with pictures of an earlier year: two folders of pictures with a table, and tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

SIZE = 64
COUNT, TESTS = 60, 8
COLUMNS = "image_name,patient_id,sex,age_approx,anatom_site_general_challenge,diagnosis,target,tfrecord"
YEARS = {
    "jpeg-melanoma-64x64": ("melanoma", "nevus", "unknown", "seborrheic keratosis"),
    "jpeg-isic2019-64x64": ("MEL", "NV", "BKL", "VASC"),
}


def write(folder: Path) -> None:
    """``jpeg-melanoma-64x64`` and ``jpeg-isic2019-64x64``: ``train.csv`` and ``train``, the first with tests."""
    rng = np.random.default_rng(0)
    for seed, (year, diagnoses) in enumerate(YEARS.items()):
        labels = np.arange(COUNT) % len(diagnoses)
        rows = [COLUMNS]
        for number, pixels in enumerate(patterned(labels, (SIZE, SIZE, 3), seed)):
            name = f"ISIC_{seed}{number:06d}"
            save(folder / year / "train" / f"{name}.jpg", pixels)
            person = f"IP_{number % 9},{('male', 'female')[number % 2]},{20 + rng.integers(0, 60)}.0,torso"
            rows.append(f"{name},{person},{diagnoses[labels[number]]},{int(labels[number] == 0)},{number % 15}")
        (folder / year / "train.csv").write_text("\n".join(rows) + "\n")
    tests = next(iter(YEARS))
    rows = [",".join(COLUMNS.split(",")[:5])]
    for number, pixels in enumerate(patterned(np.zeros(TESTS, np.int64), (SIZE, SIZE, 3), 2)):
        save(folder / tests / "test" / f"ISIC_2{number:06d}.jpg", pixels)
        rows.append(f"ISIC_2{number:06d},IP_{number % 3},male,40.0,torso")
    (folder / tests / "test.csv").write_text("\n".join(rows) + "\n")
