"""Molecules as SMILES, each with a property: whether it holds, or how much."""

from __future__ import annotations

from pathlib import Path

import numpy as np

GROUPS = ("C", "CC", "C(C)C", "C(=O)O", "C(=O)N", "c1ccccc1", "C1CCCCC1", "CO", "CN", "C(F)F", "c1ccncc1", "CS")
TRAIN, TEST = 60, 24


def write(folder: Path) -> None:
    """``classification/hiv`` and ``regression/photovoltaic``, each ``data_train.txt`` and ``data_test.txt``."""
    rng = np.random.default_rng(0)
    for kind, name in (("classification", "hiv"), ("regression", "photovoltaic")):
        place = folder / kind / name
        place.mkdir(parents=True)
        for part, count in (("train", TRAIN), ("test", TEST)):
            lines = ["smiles property"]
            for _ in range(count):
                groups = rng.choice(GROUPS, rng.integers(2, 5))
                oxygen = sum("O" in group for group in groups)
                value = str(int(oxygen > 0)) if kind == "classification" else f"{oxygen + rng.normal(0, 0.1):.3f}"
                lines.append(f"{'C'.join(_closed(groups))} {value}")
            (place / f"data_{part}.txt").write_text("\n".join(lines))


def _closed(groups: np.ndarray) -> list[str]:
    """Groups that end a chain stand beside it, in brackets."""
    return [f"C({group})" for group in groups]
