"""UCF101: videos of actions as folders of frames, and the names of the actions."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from ._pictures import patterned, save

ACTIONS = ["Archery", "Biking", "Diving", "Rowing"]
EACH = 12
FRAMES = 4


def write(folder: Path) -> None:
    """``jpegs_256/v_ACTION_gNUMBER_c01/frame00000N.jpg`` (32 x 32) and ``UCF101actions.pkl``."""
    for label, action in enumerate(ACTIONS):
        for video in range(EACH):
            frames = patterned(np.full(FRAMES, label), (32, 32, 3), EACH * label + video)
            for number, pixels in enumerate(frames, 1):
                name = f"v_{action}_g{video + 1:02d}_c01"
                save(folder / "jpegs_256" / name / f"frame{number:06d}.jpg", pixels)
    (folder / "UCF101actions.pkl").write_bytes(pickle.dumps(ACTIONS))
