"""Papers with the words that they use, and which cites which, as Cora's own two files have it: graph convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

KINDS = (
    *("Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods"),
    *("Reinforcement_Learning", "Rule_Learning", "Theory"),
)
PAPERS, CITATIONS, WORDS = 2300, 3000, 40


def write(folder: Path) -> None:
    """``cora.content``: a paper a line, its number, words (0 or 1) and kind; ``cora.cites``: two numbers a line."""
    rng = np.random.default_rng(0)
    numbers = rng.permutation(100_000)[:PAPERS] + 31_000
    kinds = rng.integers(0, len(KINDS), PAPERS)
    words = rng.random((PAPERS, WORDS)) < 0.05
    for paper, kind in enumerate(kinds):
        words[paper, kind * 5 : kind * 5 + 5] |= rng.random(5) < 0.4
    lines = (
        "\t".join([str(number), *map(str, row.astype(int)), KINDS[kind]])
        for number, row, kind in zip(numbers, words, kinds, strict=True)
    )
    (folder / "cora.content").write_text("\n".join(lines) + "\n")
    cited: set[tuple[int, int]] = set()
    while len(cited) < CITATIONS:
        a, b = (int(each) for each in rng.integers(0, PAPERS, 2))
        if a != b and (kinds[a] == kinds[b] or rng.random() < 0.15):
            cited.add((a, b))
    (folder / "cora.cites").write_text("".join(f"{numbers[a]}\t{numbers[b]}\n" for a, b in sorted(cited)))
