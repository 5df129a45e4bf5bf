"""The monthly passengers of an airline, 1949 to 1960: a trend and a season."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MONTHS = 144


def write(folder: Path) -> None:
    """``airline-passengers.csv`` with the columns Month and Passengers."""
    month = np.arange(MONTHS)
    passengers = (110 + 2.5 * month) * (1 + 0.2 * np.sin(month * np.pi / 6))
    lines = [f'"{1949 + each // 12}-{each % 12 + 1:02d}",{value:.0f}' for each, value in enumerate(passengers)]
    (folder / "airline-passengers.csv").write_text("\n".join(['"Month","Passengers"', *lines]) + "\n")
