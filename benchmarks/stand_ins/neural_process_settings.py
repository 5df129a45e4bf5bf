"""Settings of a neural process that learns pictures, small enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

SETTINGS = {
    "img_size": [3, 16, 16],
    "batch_size": 16,
    "r_dim": 16,
    "h_dim": 16,
    "z_dim": 8,
    "num_context_range": [3, 20],
    "num_extra_target_range": [0, 20],
    "lr": 1e-3,
    "epochs": 2,
    "dataset": "celeba",
}


def write(folder: Path) -> None:
    """``celeba.json``."""
    (folder / "celeba.json").write_text(json.dumps(SETTINGS, indent=2))
