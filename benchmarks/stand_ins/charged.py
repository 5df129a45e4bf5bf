"""Charged particles that attract and repel each other, as equivariant networks are compared on them (EGNN)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PARTICLES, MOMENTS = 5, 49
PARTS = {"train": 64, "valid": 24, "test": 24}
STEPS, STEP = 10, 0.001


def write(folder: Path) -> None:
    """``loc_``, ``vel_`` (simulations x moments x 3 x 5), ``edges_`` (products of charges) and ``charges_`` of each
    part."""
    rng = np.random.default_rng(0)
    for part, count in PARTS.items():
        charges = rng.choice([-1.0, 1.0], (count, PARTICLES, 1))
        edges = charges @ charges.transpose(0, 2, 1)
        place, speed = rng.normal(0, 1, (2, count, 3, PARTICLES))
        places, speeds = [], []
        for _ in range(MOMENTS):
            places.append(place)
            speeds.append(speed)
            for _ in range(STEPS):
                apart = place[..., :, None] - place[..., None, :]
                distance = np.sqrt((apart**2).sum(1, keepdims=True)) + 0.5
                speed = speed + STEP * (apart * edges[:, None] / distance**3).sum(-1)
                place = place + STEP * speed
        arrays = {"loc": np.stack(places, 1), "vel": np.stack(speeds, 1), "edges": edges, "charges": charges}
        for name, array in arrays.items():
            np.save(folder / f"{name}_{part}_charged{PARTICLES}_initvel1small.npy", array)
