"""LGG MRI (Kaggle 3m): slices through the heads of patients, and for each where the tumour is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import save

PATIENTS = 6
SLICES = 8
SIDE = 40


def write(folder: Path) -> None:
    """A folder ``TCGA_CS_PATIENT_DATE`` for each, with ``TCGA_CS_PATIENT_DATE_SLICE.tif`` (40 x 40, RGB, black around
    the head) and its ``..._mask.tif`` (as large, white where a brighter rectangle lies)."""
    rng = np.random.default_rng(0)
    for patient in range(PATIENTS):
        name = f"TCGA_CS_{4940 + patient}_20000101"
        for number in range(1, SLICES + 1):
            pixels, mask = np.zeros((SIDE, SIDE, 3), np.uint8), np.zeros((SIDE, SIDE), np.uint8)
            pixels[4:-4, 4:-4] = rng.integers(60, 160, (SIDE - 8, SIDE - 8, 3))
            bottom, right = 20 + patient, 20 + number
            pixels[10:bottom, 10:right] += 80
            mask[10:bottom, 10:right] = 255
            save(folder / name / f"{name}_{number}.tif", pixels)
            save(folder / name / f"{name}_{number}_mask.tif", mask)
