"""Crops of aerial pictures and masks of their roads: `training/input_crop`, `training/mask_crop`; so for `testing`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._figures import figure
from ._pictures import save

SETTINGS = """\
train: "data/training"
valid: "data/testing"
log: "logs"
logging_step: 2
validation_interval: 3
checkpoints: "checkpoints"
batch_size: 4
lr: 0.001
RESNET_PLUS_PLUS: True
IMAGE_SIZE: 64
CROP_SIZE: 64
"""


def write(folder: Path) -> None:
    """24 to train on and 6 to test, 64 x 64 pixels, and settings that say so."""
    (folder / "settings.yaml").parent.mkdir(parents=True, exist_ok=True)
    (folder / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    rng = np.random.default_rng(0)
    for split, count in (("training", 24), ("testing", 6)):
        for number in range(count):
            pixels, inside = figure(rng, 64, square=number % 2 == 0)
            save(folder / split / "input_crop" / f"{number:02d}.jpg", pixels)
            save(folder / split / "mask_crop" / f"{number:02d}.jpg", np.asarray(inside * 255, np.uint8))
