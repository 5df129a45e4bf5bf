"""Digits as rows of tables, as Kaggle gives them: `train.csv` with labels, `test.csv`, `sample_submission.csv`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned


def write(folder: Path) -> None:
    """160 to train on, 24 to tell, 28 x 28 pixels."""
    pixels = ",".join(f"pixel{number}" for number in range(784))
    for seed, (split, count) in enumerate((("train", 160), ("test", 24))):
        labels = np.arange(count) % 10
        rows = [",".join(map(str, row.ravel())) for row in patterned(labels, (28, 28), seed)]
        if split == "train":
            rows = [f"{label},{row}" for label, row in zip(labels, rows, strict=True)]
        header = f"label,{pixels}" if split == "train" else pixels
        (folder / f"{split}.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    answers = "\n".join(f"{number},0" for number in range(1, 25))
    (folder / "sample_submission.csv").write_text(f"ImageId,Label\n{answers}\n", encoding="utf-8")
