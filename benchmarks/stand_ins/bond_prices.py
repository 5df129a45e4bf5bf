"""The price of a bond through the hours of each day: a wave that begins anywhere."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np

DAYS, HOURS = 40, 12


def write(folder: Path) -> None:
    """``btp.csv`` of ``data_column;orario_column;BTP_Price``, a row for each hour of 40 days."""
    rng = np.random.default_rng(0)
    rows = ["data_column;orario_column;BTP_Price"]
    for each in range(DAYS):
        day = date(2018, 1, 1) + timedelta(days=each)
        wave = 100 + np.sin(rng.uniform(0, 6) + np.arange(HOURS) / 2)
        rows += [f"{day:%d/%m/%Y};{8 + hour:02d}:00;{price:.4f}" for hour, price in enumerate(wave)]
    (folder / "btp.csv").write_text("\n".join(rows) + "\n")
