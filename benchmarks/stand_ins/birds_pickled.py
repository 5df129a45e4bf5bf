"""Pictures of birds as arrays with their labels, pickled: `processed/train.pkl`, `processed/test.pkl`."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from ._pictures import patterned


def write(folder: Path) -> None:
    """48 to train on and 16 to test, 64 x 64 pixels."""
    (folder / "processed").mkdir()
    rng = np.random.default_rng(0)
    for split, count in (("train", 48), ("test", 16)):
        labels = rng.integers(0, 10, count)
        with open(folder / "processed" / f"{split}.pkl", "wb") as file:
            pickle.dump((list(patterned(labels, (64, 64, 3))), labels.tolist()), file)
