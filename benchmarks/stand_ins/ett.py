"""ETT: what a transformer of electricity carries and how warm its oil is, hour by hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
HOURS = 20 * 30 * 24
"""Twenty months: where the usual split ends."""


def write(folder: Path) -> None:
    """``ETTh1.csv``: ``date`` and seven columns of numbers."""
    rng = np.random.default_rng(0)
    hours = np.arange(HOURS)[:, None]
    waves = np.sin(2 * np.pi * hours / (24 * np.arange(1, len(COLUMNS) + 1)))
    values = 10 * waves + rng.normal(size=waves.shape)
    start = datetime(2016, 7, 1)
    rows = [
        f"{start + timedelta(hours=hour)},{','.join(f'{value:.3f}' for value in row)}"
        for hour, row in enumerate(values)
    ]
    (folder / "ETTh1.csv").write_text("\n".join([",".join(("date", *COLUMNS)), *rows]) + "\n")
