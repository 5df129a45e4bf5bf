"""bAbI: short stories of who went where, each line of them numbered, and a question now and then."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PEOPLE, PLACES = ("Mary", "John", "Daniel", "Sandra"), ("kitchen", "garden", "office", "hallway")
STORIES = {"train": 80, "test": 24}


def write(folder: Path) -> None:
    """``qa1_single-supporting-fact_train.txt`` and the same for testing: two statements, then a question, a tab, the
    answer, a tab and the number of the line that says so."""
    rng = np.random.default_rng(0)
    for part, count in STORIES.items():
        lines = []
        for _ in range(count):
            people = rng.choice(PEOPLE, 2, replace=False)
            places = rng.choice(PLACES, 2)
            lines += [f"{number + 1} {people[number]} went to the {places[number]}." for number in range(2)]
            asked = rng.integers(2)
            lines.append(f"3 Where is {people[asked]}? \t{places[asked]}\t{asked + 1}")
        (folder / f"qa1_single-supporting-fact_{part}.txt").write_text("\n".join(lines) + "\n")
