"""The names of the pictures of ``bsds300``, as super-resolution reads them from a list."""

from __future__ import annotations

import json
from pathlib import Path

from .bsds300 import COUNTS


def write(folder: Path) -> None:
    """``train_images.json``: where the pictures are, seen from where ``pictures/train`` is linked to."""
    names = [f"pictures/train/{number + 1:06d}.jpg" for number in range(COUNTS["train"])]
    (folder / "train_images.json").write_text(json.dumps(names))
