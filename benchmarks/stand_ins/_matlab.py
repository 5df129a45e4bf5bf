"""Files of MATLAB, without the time at which they were written."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np

io = import_module("scipy.io")
HEAD = b"MATLAB 5.0 MAT-file".ljust(116)


def write_mat(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, the same bytes each time."""
    io.savemat(path, dict(arrays))
    path.write_bytes(HEAD + path.read_bytes()[len(HEAD) :])
