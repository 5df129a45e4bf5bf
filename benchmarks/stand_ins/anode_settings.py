"""Settings of two small experiments with neural differential equations (ANODE), which make or have their own data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPHERES: dict[str, Any] = {
    "id": "x",
    "data_dim": 2,
    "num_reps": 1,
    "viz_batch_size": 64,
    "datasets": [
        {
            "type": "sphere",
            "num_points_inner": 64,
            "num_points_outer": 96,
            "inner_range": [0.0, 0.5],
            "outer_range": [1.0, 1.5],
        }
    ],
    "model_configs": [
        {"type": "resnet", "hidden_dim": 16, "num_layers": 2, "lr": 0.001},
        {"type": "anode", "hidden_dim": 16, "time_dependent": True, "lr": 0.001, "augment_dim": 2},
    ],
    "training_config": {"batch_size": 16, "record_freq": 2, "print_freq": 2, "epochs": 2},
}
PICTURES: dict[str, Any] = {
    "id": "x",
    "num_reps": 1,
    "dataset": "mnist",
    "model_configs": [
        {
            "type": "anode",
            "num_filters": 4,
            "augment_dim": 1,
            "time_dependent": True,
            "lr": 0.001,
            "non_linearity": "relu",
            "weight_decay": 0.0,
            "validation": False,
        }
    ],
    "training_config": {"batch_size": 32, "record_freq": 2, "print_freq": 2, "epochs": 1},
}


def write(folder: Path) -> None:
    """``small.json`` for points in and around a sphere, and ``small_img.json`` for MNIST."""
    (folder / "small.json").write_text(json.dumps(SPHERES))
    (folder / "small_img.json").write_text(json.dumps(PICTURES))
