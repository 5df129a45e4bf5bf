"""Faces of seven moods, as FER2013 is given: one table of ``emotion``, ``pixels`` and ``Usage``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SIZE = 48


def write(folder: Path) -> None:
    """``fer2013.csv``: 42 to train on, 21 to validate and 14 to test, each with a stripe where its mood is."""
    rng = np.random.default_rng(0)
    rows = ["emotion,pixels,Usage"]
    for usage, count in (("Training", 42), ("PublicTest", 14), ("PrivateTest", 21)):
        for each in range(count):
            picture = rng.integers(0, 120, (SIZE, SIZE))
            picture[each % 7 * 6 : each % 7 * 6 + 6] += 120
            rows.append(f"{each % 7},{' '.join(map(str, picture.ravel()))},{usage}")
    (folder / "fer2013.csv").write_text("\n".join(rows) + "\n")
