"""What users have bought, and facts about it, by number, as recommenders over knowledge graphs read them."""

from __future__ import annotations

import random
from pathlib import Path

USERS, ITEMS, ENTITIES, RELATIONS, FACTS = 24, 30, 40, 3, 120


def write(folder: Path) -> None:
    """``train.txt`` and ``test.txt`` of a user and their items a line, ``kg_final.txt`` of head, relation, tail."""
    rng = random.Random(3)
    for name, count in (("train", 6), ("test", 3)):
        lines = (" ".join(map(str, [user, *rng.sample(range(ITEMS), count)])) for user in range(USERS))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    facts = {(rng.randrange(ENTITIES), rng.randrange(RELATIONS), rng.randrange(ENTITIES)) for _ in range(FACTS)}
    (folder / "kg_final.txt").write_text("\n".join(" ".join(map(str, fact)) for fact in sorted(facts)) + "\n")
