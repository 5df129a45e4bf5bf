"""The placements of all fixtures beside what today's analysis says of the same expressions, which they are to replace.

A value that placements call replicated and the analysis does not would be a silent error: each fixture with one is
listed here. Elsewhere placements may be the more careful ones, and say `PerRank` where the analysis has a side mark.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from conftest import ROOT

from autodist import catalog
from autodist.interpreter import Plan, Runs, Unfinished
from autodist.placement import Placement, Replicate, Shard
from autodist.placement.propagate import propagate
from autodist.project import Project
from autodist.trace import trace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = catalog.load()
FIXTURES = sorted(path.parent for path in ROOT.glob("fixtures/*/before") if "refused" not in path.parent.name)
ASKED = (ast.Call, ast.BinOp, ast.Name, ast.Attribute, ast.Subscript)
LEAST = 0.94
"""Of so many expressions, at least, both say the same."""
FOUND_REPLICATED = {
    "codebook_follows_samples": (2, "features.shape[2:], the height and width of pictures"),
    "dataclass_config": (2, "the entries of a dict that a function gives and a comprehension goes through by items()"),
    "ddp_torchrun_incomplete": (1, "args.batch_size // world_size, of a world size that the environment says"),
    "horovod_digits": (3, "len(sampler) of a sampler that the script itself shares out"),
}
"""How many expressions placements call replicated, where the analysis does not, and why."""


def word(placement: Placement) -> str:
    """A placement in the words of the interpreter."""
    return "SAME" if isinstance(placement, Replicate) and not placement.exponent else "LOCAL"


def compared(name: str) -> Iterator[tuple[str, str]]:
    """What both say of each expression of a fixture, where every loader is shared out."""
    folder = ROOT / "fixtures" / name
    entry = tomllib.loads((folder / "fixture.toml").read_text()).get("entry", "train.py")
    project = Project.load(folder / "before" / entry)
    try:
        run = Runs(project, FACTS)(Plan())
    except Unfinished:
        return
    program = trace(project, FACTS)
    placements = propagate(program, lambda source: Shard(0), catalog=FACTS)
    for node, value in run.values.items():
        operations = program.at(node).operations
        if not isinstance(node, ASKED) or isinstance(run.sources[node].parents.get(node), ast.Expr):
            continue
        words = [word(placements.of[each]) for each in operations if each in placements.of]
        if not words or value.spread.name in ("WORLD", "RANK"):
            continue
        said = value.spread.name
        yield said, said if said in words else max(words, key=lambda each: each != "SAME")


@pytest.fixture(scope="module")
def pairs() -> dict[str, Counter[tuple[str, str]]]:
    return {folder.name: Counter(compared(folder.name)) for folder in FIXTURES}


def test_most_expressions_are_placed_alike(pairs: dict[str, Counter[tuple[str, str]]]) -> None:
    every = sum(pairs.values(), Counter())
    assert sum(n for (old, new), n in every.items() if old == new) >= LEAST * every.total()


def test_nothing_else_is_replicated(pairs: dict[str, Counter[tuple[str, str]]]) -> None:
    found = {
        name: count
        for name, each in pairs.items()
        if (count := sum(n for (old, new), n in each.items() if new == "SAME" != old))
    }
    assert found == {name: count for name, (count, _) in FOUND_REPLICATED.items()}
