"""What customers of an electricity company used, cut into windows for a recurrent forecaster (DeepAR)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

COUNTS = {"train": 96, "test": 32}
HOURS = 24
START = 18
"""The first hour that is predicted."""
CUSTOMERS = 5
COVARIATES = 4
SETTINGS = {
    "learning_rate": 1e-3,
    "batch_size": 16,
    "lstm_layers": 2,
    "num_epochs": 2,
    "train_window": HOURS,
    "test_window": HOURS,
    "predict_start": START,
    "test_predict_start": START,
    "predict_steps": HOURS - START,
    "num_class": CUSTOMERS,
    "cov_dim": COVARIATES,
    "lstm_hidden_dim": 16,
    "embedding_dim": 8,
    "sample_times": 8,
    "lstm_dropout": 0.1,
    "predict_batch": 16,
}


def write(folder: Path) -> None:
    """``PART_data_elect.npy`` (windows x 24 x 6: the hour before, four covariates, the customer), ``PART_v_elect.npy``
    (windows x 2: the scale), ``PART_label_elect.npy`` (windows x 24; only for training are they scaled), all float32,
    and the settings of a small network in ``params.json``."""
    (folder / "params.json").write_text(json.dumps(SETTINGS))
    for seed, (part, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng(seed)
        customers, starts = rng.integers(CUSTOMERS, size=count), rng.integers(HOURS, size=count)
        hours = starts[:, None] + np.arange(HOURS + 1)
        used = 1.5 + np.sin(hours * np.pi / 6) * (0.3 + 0.1 * customers[:, None]) + 0.05 * rng.normal(size=hours.shape)
        scales = used[:, 1 : 1 + START].mean(axis=1) + 1
        scaled = used / scales[:, None]
        windows = np.zeros((count, HOURS, 2 + COVARIATES))
        windows[:, 1:, 0] = scaled[:, 1:-1]
        windows[:, :, 1:-1] = np.sin(0.3 * np.arange(1, COVARIATES + 1) * hours[:, :-1, None])
        windows[:, :, -1] = customers[:, None]
        labels = (scaled if part == "train" else used)[:, 1:]
        both = np.stack((scales, np.zeros(count)), axis=1)
        for name, array in {"data": windows, "v": both, "label": labels}.items():
            np.save(folder / f"{part}_{name}_elect.npy", array.astype(np.float32))
