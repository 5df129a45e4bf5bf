"""MNIST in one file of MATLAB, as work on domain adaptation reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._matlab import write_mat
from ._pictures import patterned

COUNTS = {"train": 256, "test": 64}


def write(folder: Path) -> None:
    """``mnist_data.mat`` with ``train_28`` and ``test_28`` (count x 28 x 28 x 1), and ``label_train`` and
    ``label_test``, which have a one in one of ten columns."""
    arrays = {}
    for seed, (split, count) in enumerate(COUNTS.items()):
        labels = np.random.default_rng(seed).integers(0, 10, count)
        arrays[f"{split}_28"] = patterned(labels, (28, 28, 1), seed)
        arrays[f"label_{split}"] = np.eye(10)[labels]
    write_mat(folder / "mnist_data.mat", arrays)
