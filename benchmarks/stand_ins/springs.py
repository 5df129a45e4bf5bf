"""Particles on springs, as work on the relations between things simulates them: where they are and how fast."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PARTICLES = 5
PARTS = {"train": (64, 49), "valid": (32, 49), "test": (32, 100)}
"""How many simulations, and how many moments of each."""
STEPS = 10
"""Of the simulation between two moments."""
STEP = 0.01


def write(folder: Path) -> None:
    """``loc_PART_springs5.npy`` and ``vel_PART_springs5.npy`` (simulations x moments x 2 x 5), and which particles are
    connected in ``edges_PART_springs5.npy`` (simulations x 5 x 5): what an inference of relations is trained on."""
    rng = np.random.default_rng(0)
    for part, (count, moments) in PARTS.items():
        edges = np.triu(rng.random((count, PARTICLES, PARTICLES)) < 0.5, 1)
        edges = (edges + edges.transpose(0, 2, 1)).astype(float)
        places, speeds = simulated(rng, edges, moments)
        for name, array in {"loc": places, "vel": speeds, "edges": edges}.items():
            np.save(folder / f"{name}_{part}_springs{PARTICLES}.npy", array)


def simulated(rng: np.random.Generator, edges: np.ndarray, moments: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the particles are, and their speeds, at each moment."""
    place, speed = rng.normal(0, 0.5, (2, len(edges), 2, PARTICLES))
    places, speeds = [], []
    for _ in range(moments):
        places.append(place)
        speeds.append(speed)
        for _ in range(STEPS):
            apart = place[..., :, None] - place[..., None, :]
            speed = speed - STEP * (apart * edges[:, None]).sum(-1)
            place = place + STEP * speed
    return np.stack(places, 1), np.stack(speeds, 1)
