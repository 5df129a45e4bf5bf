"""Cora as torch_geometric's `Planetoid` reads it raw: pickled matrices and who cites whom."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from scipy import sparse  # type: ignore[import-not-found, import-untyped, unused-ignore]

KNOWN, TESTED, TRAINED, KINDS, WORDS, CITATIONS = 700, 100, 140, 7, 35, 1600


def write(folder: Path) -> None:
    """``ind.cora.NAME`` for x, tx, allx, y, ty, ally and graph, and ``ind.cora.test.index``."""
    rng = np.random.default_rng(0)
    papers = KNOWN + TESTED
    kinds = rng.integers(0, KINDS, papers)
    words = (rng.random((papers, WORDS)) < 0.05).astype(np.float32)
    for paper, kind in enumerate(kinds):
        words[paper, kind * 5 : kind * 5 + 5] = rng.random(5) < 0.5
    one_hot = np.eye(KINDS, dtype=np.int32)[kinds]
    graph: dict[int, list[int]] = {paper: [] for paper in range(papers)}
    for a, b in rng.integers(0, papers, (CITATIONS, 2)).tolist():
        if a != b and (kinds[a] == kinds[b] or rng.random() < 0.2):
            graph[a].append(b)
            graph[b].append(a)
    parts = {
        "x": sparse.csr_matrix(words[:TRAINED]),
        "tx": sparse.csr_matrix(words[KNOWN:]),
        "allx": sparse.csr_matrix(words[:KNOWN]),
        "y": one_hot[:TRAINED],
        "ty": one_hot[KNOWN:],
        "ally": one_hot[:KNOWN],
        "graph": graph,
    }
    for name, part in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(part))
    (folder / "ind.cora.test.index").write_text("".join(f"{paper}\n" for paper in range(KNOWN, papers)))
