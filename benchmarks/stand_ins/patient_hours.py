"""Two days of patients by the hour, with holes, as BRITS prepares those of PhysioNet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PATIENTS, HOURS, ATTRIBUTES = 32, 48, 35


def write(folder: Path) -> None:
    """``json``, a patient a line: values, masks, time since the last value, and what was taken out, both ways."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(PATIENTS):
        label = int(rng.integers(0, 2))
        evals = np.round(rng.normal(label, 1, (HOURS, ATTRIBUTES)), 3)
        there = rng.random(evals.shape) < 0.4
        masks = there & (rng.random(evals.shape) < 0.9)
        forward = _one_way(evals * there, masks, there)
        backward = _one_way((evals * there)[::-1], masks[::-1], there[::-1])
        lines.append(json.dumps({"label": label, "forward": forward, "backward": backward}))
    (folder / "json").write_text("\n".join(lines) + "\n")


def _one_way(evals: NDArray[Any], masks: NDArray[Any], there: NDArray[Any]) -> dict[str, Any]:
    deltas = [np.ones(ATTRIBUTES)]
    for hour in range(1, HOURS):
        deltas.append(1 + (1 - masks[hour]) * deltas[-1])
    return {
        "values": (evals * masks).tolist(),
        "masks": masks.astype(int).tolist(),
        "evals": evals.tolist(),
        "eval_masks": (there ^ masks).astype(int).tolist(),
        "forwards": (evals * masks).tolist(),
        "deltas": np.array(deltas).tolist(),
    }
