"""Frames of videos in a folder for each, and the lists that split them (UCF101)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ._pictures import patterned, save

ACTIONS = ("Archery", "Bowling", "Diving")
COUNTS = {"trainlist01.txt": 24, "testlist01.txt": 8}


def write(folder: Path) -> None:
    """``frames/Archery/v_Archery_000/0.jpg`` and seven more, ``lists/classInd.txt``, lists of 24 and 8 videos."""
    (folder / "lists").mkdir()
    kinds = "".join(f"{number} {action}\n" for number, action in enumerate(ACTIONS, 1))
    (folder / "lists" / "classInd.txt").write_text(kinds)
    rng = np.random.default_rng(0)
    for file, count in COUNTS.items():
        names = []
        for number, label in enumerate(np.arange(count) % len(ACTIONS)):
            name = f"{ACTIONS[label]}/v_{ACTIONS[label]}_{file[:4]}{number:03d}"
            for frame, pixels in enumerate(patterned(np.full(8, label), (32, 32, 3), int(rng.integers(1000)))):
                save(folder / "frames" / name / f"{frame}.jpg", pixels)
            names.append(f"{name}.avi {label + 1}\n")
        (folder / "lists" / file).write_text("".join(names))
