"""Traffic at a few sensors, cut into windows of an hour and divided, as ASTGCN prepares PeMSD4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SENSORS, STEPS = 6, 12
SETTINGS = """[Data]
adj_filename = data/distance.csv
graph_signal_matrix_filename = data/PEMS04.npz
num_of_vertices = 6
points_per_hour = 12
num_for_predict = 12
len_input = 12
dataset_name = PEMS04
[Training]
ctx = 0
in_channels = 1
nb_block = 2
K = 3
nb_chev_filter = 8
nb_time_filter = 8
batch_size = 16
model_name = astgcn_r
num_of_weeks = 0
num_of_days = 0
num_of_hours = 1
start_epoch = 0
epochs = 3
learning_rate = 0.001
"""
COUNTS = {"train": 75, "val": 21, "test": 21}


def write(folder: Path) -> None:
    """``PEMS04_r1_d0_w0_astcgn.npz`` (windows x sensors x 1 x 12 and what follows), ``distance.csv``, and settings in
    ``small.conf``."""
    rng = np.random.default_rng(0)
    phases = rng.uniform(0, 2 * np.pi, SENSORS)
    arrays: dict[str, Any] = {}
    start = 0
    for split, count in COUNTS.items():
        moments = start + np.arange(count)[:, None, None] + np.arange(2 * STEPS)
        flow = np.sin(moments / 6 + phases[:, None]) + rng.normal(0, 0.1, (count, SENSORS, 2 * STEPS))
        arrays |= {f"{split}_x": flow[:, :, None, :STEPS], f"{split}_target": flow[..., STEPS:]}
        start += count
    arrays |= {"mean": np.zeros((1, 1, 1, 1)), "std": np.ones((1, 1, 1, 1))}
    np.savez_compressed(folder / "PEMS04_r1_d0_w0_astcgn.npz", **arrays)
    (folder / "small.conf").write_text(SETTINGS)
    roads = [f"{sensor},{(sensor + 1) % SENSORS},1.0\n" for sensor in range(SENSORS)]
    (folder / "distance.csv").write_text("from,to,cost\n" + "".join(roads + [_back(road) for road in roads]))


def _back(road: str) -> str:
    start, end, cost = road.split(",")
    return f"{end},{start},{cost}"
