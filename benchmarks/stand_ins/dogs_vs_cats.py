"""Dogs vs. Cats: pictures in one folder, named for what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

COUNT = 64


def write(folder: Path) -> None:
    """``train/cat.NUMBER.jpg`` and ``train/dog.NUMBER.jpg``, ``test/NUMBER.jpg``; 64 x 64."""
    labels = np.arange(COUNT) % 2
    for number, pixels in enumerate(patterned(labels, (64, 64, 3))):
        save(folder / "train" / f"{('cat', 'dog')[labels[number]]}.{number // 2}.jpg", pixels)
    for number, pixels in enumerate(patterned(labels[:16], (64, 64, 3), seed=1)):
        save(folder / "test" / f"{number + 1}.jpg", pixels)
