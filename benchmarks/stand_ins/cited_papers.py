"""Papers that cite each other, with words and a subject, in the form of Cora."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PAPERS, WORDS, SUBJECTS = 90, 12, ("Theory", "Genetic_Algorithms", "Neural_Networks")


def write(folder: Path) -> None:
    """``cora.content``: number, words and subject of a paper; ``cora.cites``: pairs of numbers."""
    rng = np.random.default_rng(0)
    subjects = rng.integers(0, len(SUBJECTS), PAPERS)
    words = rng.random((PAPERS, WORDS)) < 0.2 + 0.5 * (np.arange(WORDS) % len(SUBJECTS) == subjects[:, None])
    rows = zip(words.astype(int), subjects, strict=True)
    content = ["\t".join((str(1000 + n), *map(str, row), SUBJECTS[subject])) for n, (row, subject) in enumerate(rows)]
    (folder / "cora.content").write_text("\n".join(content) + "\n")
    pairs = [(paper, (paper + 1) % PAPERS) for paper in range(PAPERS)] + rng.integers(0, PAPERS, (60, 2)).tolist()
    cites = [f"{1000 + a}\t{1000 + b}" for a, b in pairs if a != b]
    (folder / "cora.cites").write_text("\n".join(cites) + "\n")
