"""Settings of a short training of LeNet with mixup, in the words of CIFAR-ZOO."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {
    "architecture": "lenet",
    "data_path": "./data",
    "ckpt_path": "./",
    "ckpt_name": "lenet",
    "num_classes": 10,
    "dataset": "cifar10",
    "use_gpu": True,
    "input_size": 32,
    "epochs": 2,
    "batch_size": 32,
    "test_batch": 32,
    "eval_freq": 1,
    "workers": 1,
    "optimize": {"momentum": 0.9, "weight_decay": 0.0001, "nesterov": True},
    "mixup": True,
    "mixup_alpha": 0.4,
    "augmentation": {
        "normalize": True,
        "random_crop": True,
        "random_horizontal_filp": True,
        "cutout": False,
        "holes": 1,
        "length": 8,
    },
    "lr_scheduler": {
        "type": "STEP",
        "base_lr": 0.1,
        "lr_epochs": [100, 150, 200],
        "lr_mults": 0.1,
        "min_lr": 0.0,
        "lower_bound": -6.0,
        "upper_bound": 3.0,
    },
}


def write(folder: Path) -> None:
    """``config.yaml``: JSON is YAML."""
    (folder / "config.yaml").write_text(json.dumps(SETTINGS, indent=2))
