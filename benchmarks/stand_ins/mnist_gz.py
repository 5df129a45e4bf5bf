"""MNIST as its authors published it: four files, compressed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from ._idx import write_digits


def write(folder: Path) -> None:
    """``train-images-idx3-ubyte.gz`` and its three relatives."""
    write_digits(folder, 0)
    for path in sorted((folder / "raw").iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    shutil.rmtree(folder / "raw")
