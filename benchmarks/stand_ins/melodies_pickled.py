"""Melodies as lists of the numbers of events, pickled."""

from __future__ import annotations

import pickle
from pathlib import Path

EVENTS, LENGTH = 380, 30


def write(folder: Path) -> None:
    """``train``, ``val`` and ``test`` with a ``.pickle`` for each melody."""
    for part, count in (("train", 10), ("val", 5), ("test", 4)):
        (folder / part).mkdir()
        for each in range(count):
            melody = [(each * 7 + at * (3 + each % 5)) % EVENTS for at in range(LENGTH)]
            (folder / part / f"{each:02d}.pickle").write_bytes(pickle.dumps(melody))
