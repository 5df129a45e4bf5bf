"""PPI, the protein graphs, as torch_geometric reads them raw: many small graphs whose nodes have several labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

GRAPHS = {"train": 16, "valid": 4, "test": 4}
FEATURES, LABELS = 50, 121


def write(folder: Path) -> None:
    """``SPLIT_graph.json``, ``SPLIT_feats.npy``, ``SPLIT_labels.npy`` and ``SPLIT_graph_id.npy``."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(7).normal(size=(FEATURES, LABELS))
    for seed, (split, count) in enumerate(GRAPHS.items()):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(6, 14, count)
        numbers = np.repeat(np.arange(1, count + 1), sizes)
        features = rng.normal(size=(len(numbers), FEATURES))
        np.save(folder / f"{split}_feats.npy", features)
        np.save(folder / f"{split}_labels.npy", np.asarray(features @ weights > 0, np.int64))
        np.save(folder / f"{split}_graph_id.npy", numbers)
        nodes = [{"id": int(node)} for node in range(len(numbers))]
        links = [link for number in range(1, count + 1) for link in edges(rng, np.flatnonzero(numbers == number))]
        graph = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
        (folder / f"{split}_graph.json").write_text(json.dumps(graph))


def edges(rng: np.random.Generator, nodes: np.ndarray) -> list[dict[str, int]]:
    """Every node and three others, both ways."""
    pairs = {(int(node), int(other)) for node in nodes for other in rng.choice(nodes, 3) if node != other}
    both = pairs | {(other, node) for node, other in pairs}
    return [{"source": source, "target": target} for source, target in sorted(both)]
