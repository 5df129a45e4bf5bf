"""MUTAG as papers on graph networks hand it on: molecules of two classes in one text file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COUNT = 60
TAGS = 4


def write(folder: Path) -> None:
    """``MUTAG.txt``: how many graphs; for each its number of nodes and class, then for each node its tag, how many
    neighbours it has and which."""
    rng = np.random.default_rng(0)
    lines = [str(COUNT)]
    for number in range(COUNT):
        label = number % 2
        size = int(rng.integers(6, 12))
        neighbours: list[set[int]] = [set() for _ in range(size)]
        links = [(node, (node + 1) % size) for node in range(size)]  # a ring, and one class has chords
        links += [(node, (node + 3) % size) for node in range(0, size, 2) if label]
        for one, two in links:
            neighbours[one].add(two)
            neighbours[two].add(one)
        lines.append(f"{size} {label}")
        for near in neighbours:
            lines.append(" ".join(map(str, [int(rng.integers(TAGS)), len(near), *sorted(near)])))
    (folder / "MUTAG.txt").write_text("\n".join(lines) + "\n")
