"""FashionMNIST as tables, as Kaggle gives it, beside the files that these were made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._idx import write_digits
from ._pictures import patterned

COUNTS = {"train": 256, "test": 64}


def write(folder: Path) -> None:
    """``fashion-mnist_PART.csv`` (``label``, ``pixel1`` to ``pixel784``) and ``train-images-idx3-ubyte`` and so on."""
    rng = np.random.default_rng(0)
    for seed, (part, count) in enumerate(COUNTS.items()):
        labels = rng.integers(0, 10, count)
        rows = np.column_stack([labels, patterned(labels, (784,), seed)])
        header = ",".join(["label", *(f"pixel{number + 1}" for number in range(784))])
        np.savetxt(folder / f"fashion-mnist_{part}.csv", rows, "%d", ",", header=header, comments="")
    write_digits(folder, 0)
    for file in (folder / "raw").glob("*"):
        file.rename(folder / file.name)
    (folder / "raw").rmdir()
