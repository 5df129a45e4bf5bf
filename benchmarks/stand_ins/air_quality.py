"""What sensors of the air of a town say by the hour: waves of a day."""

from __future__ import annotations

from pathlib import Path

import numpy as np

HOURS = 90
SENSORS = ("CO(GT)", "C6H6(GT)", "NO2(GT)", "T", "RH", "AH")


def write(folder: Path) -> None:
    """``AirQualityUCI.csv`` of ``Date_Time`` and six sensors."""
    rng = np.random.default_rng(0)
    rows = [",".join(("Date_Time", *SENSORS))]
    for hour in range(HOURS):
        values = np.sin(hour * 0.26 + np.arange(len(SENSORS))) + 0.1 * rng.normal(size=len(SENSORS))
        rows.append(",".join((f"2004-03-{1 + hour // 24:02d} {hour % 24:02d}:00:00", *(f"{v:.4f}" for v in values))))
    (folder / "AirQualityUCI.csv").write_text("\n".join(rows) + "\n")
