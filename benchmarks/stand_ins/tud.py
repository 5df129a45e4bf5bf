"""A data set of small graphs as TU Dortmund keeps them, which torch_geometric's `TUDataset` reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAMES = ("PROTEINS", "MUTAG")
GRAPHS = 120
LABELS = 16
"""Kinds of nodes: so many that few nodes are alike, of which a pooling layer could keep any."""


def write(folder: Path) -> None:
    """``NAME/raw/NAME_A.txt`` with an edge a line, and which graph each node is of, its kind, and the graph's class."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(8, 16, GRAPHS)
    classes = rng.integers(0, 2, GRAPHS)
    edges: list[str] = []
    kinds: list[int] = []
    first = 1
    for size, kind in zip(sizes.tolist(), classes.tolist(), strict=True):
        ring = [(node, (node + 1) % size) for node in range(size)]
        chords = [(node, (node + 2) % size) for node in range(0, size // 2, 1 + kind)]
        edges += [f"{first + a}, {first + b}\n{first + b}, {first + a}" for a, b in ring + chords]
        kinds += rng.integers(0, LABELS, size).tolist()
        first += size
    graph = np.repeat(np.arange(1, GRAPHS + 1), sizes).tolist()
    for name in NAMES:
        raw = folder / name / "raw"
        raw.mkdir(parents=True)
        tables = {"A": edges, "graph_indicator": graph, "graph_labels": classes.tolist(), "node_labels": kinds}
        for table, rows in tables.items():
            (raw / f"{name}_{table}.txt").write_text("\n".join(map(str, rows)) + "\n")
