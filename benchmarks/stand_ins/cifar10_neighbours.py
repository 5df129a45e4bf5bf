"""Which pictures of CIFAR10's stand-in are like which, as SCAN's first stage writes it for the second."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .cifar10 import COUNTS

NEAREST = {"train": 20, "val": 5}


def write(folder: Path) -> None:
    """``topk-train-neighbors.npy`` and ``topk-val-neighbors.npy``: a row for each picture, its own number and those
    of 20, or 5, others."""
    rng = np.random.default_rng(0)
    tested = COUNTS["test_batch"]
    for part, count in {"train": sum(COUNTS.values()) - tested, "val": tested}.items():
        steps = np.array([rng.choice(np.arange(1, count), NEAREST[part], replace=False) for _ in range(count)])
        own = np.arange(count)[:, None]
        np.save(folder / f"topk-{part}-neighbors.npy", np.hstack((own, (own + steps) % count)))
