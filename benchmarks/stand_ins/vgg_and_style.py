"""What style transfer starts from, where no trained weights are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ._pictures import patterned, save


def write(folder: Path) -> None:
    """``vgg16-00b39a1b.pth``, an empty state to load with ``strict=False``, and the style ``mosaic.jpg`` (64 x 64)."""
    torch.save({}, folder / "vgg16-00b39a1b.pth")
    save(folder / "mosaic.jpg", patterned(np.array([3]), (64, 64, 3), seed=1)[0])
