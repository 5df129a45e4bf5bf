"""Pictures and labels in the files of CIFAR. torchvision knows the real ones by their hash, and refuses others unless
`torchvision.datasets.cifar.check_integrity` is replaced."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ._pictures import patterned


def write_batches(folder: Path, counts: Mapping[str, int], labels: str, classes: int, meta: str) -> None:
    """One file for each of ``counts``, with the number of pictures in it, and the names of the classes in ``meta``."""
    for seed, (name, count) in enumerate(counts.items()):
        chosen = np.random.default_rng(seed).integers(0, classes, count)
        batch = {"data": patterned(chosen, (3072,), seed), labels: chosen.tolist()}
        (folder / name).write_bytes(pickle.dumps(batch))
    names = [f"class_{number}" for number in range(classes)]
    (folder / meta).write_bytes(pickle.dumps({"label_names": names, "fine_label_names": names}))
