"""Several series side by side, one line for each time and no names, as LSTNet and its successors read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TIMES, SERIES = 200, 8


def write(folder: Path) -> None:
    """``series.txt``"""
    rng = np.random.default_rng(0)
    times, phases = np.arange(TIMES)[:, None], rng.uniform(0, 6, SERIES)
    series = 2 + np.sin(times / 12 + phases) + rng.normal(0, 0.1, (TIMES, SERIES))
    np.savetxt(folder / "series.txt", series, delimiter=",", fmt="%.4f")
