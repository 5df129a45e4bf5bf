"""Recordings of welding, of several lengths in one table, as transformers of multivariate time series read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COLUMNS = ("wire_feed_speed", "current", "voltage", "motor_current", "per_energy")
RECORDINGS = 96


def write(folder: Path) -> None:
    """``day.csv``: ``weld_record_index`` (from 1), five columns of numbers, ``true_energy`` and ``diff_time``; and
    ``sktime/``, which takes the place of the package of which such scripts import a reader that they do not use for
    this table."""
    rng = np.random.default_rng(0)
    rows = [",".join(("weld_record_index", *COLUMNS, "true_energy", "diff_time"))]
    for number in range(1, RECORDINGS + 1):
        moments = np.arange(rng.integers(24, 40))[:, None]
        waves = rng.uniform(0.5, 2) * np.sin(moments / 4 + np.arange(len(COLUMNS)))
        values = waves + 0.05 * rng.normal(size=waves.shape)
        rows += [f"{number},{','.join(f'{value:.4f}' for value in row)},1.0,0.1" for row in values]
    (folder / "day.csv").write_text("\n".join(rows) + "\n")
    (folder / "sktime").mkdir()
    (folder / "sktime" / "__init__.py").write_text("")
    (folder / "sktime" / "utils.py").write_text("load_data = None\n")
