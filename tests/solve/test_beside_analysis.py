"""The sources of all fixtures beside what today's analysis finds, which they are to replace: the loaders that train,
and the batches that a step makes by hand. Each fixture where they differ is listed, with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import ROOT

from autodist import catalog
from autodist.analyze import analyze
from autodist.config import Config
from autodist.project import Project
from autodist.script import TrainingScript
from autodist.solve.sources import Sources, sources
from autodist.trace import trace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = catalog.load()
FIXTURES = sorted(path.parent for path in ROOT.glob("fixtures/*/before") if "refused" not in path.parent.name)
DIFFERENT = {
    "config_registry": "a loader of a class of the project's own; the analysis finds where that calls DataLoader",
    "full_batch_graph": "the numbers of samples are made once; the analysis takes them for a draw of each step",
    "full_batch_words": "words are looked up in lists and dicts by numbers that are drawn: not followed by the graph",
    "lm_states_batch_first": "slices of all rows, as in char_rnn_get_batches; the analysis shares out the data instead",
    "sequences_first_noise": "shared out along the second axis; the analysis refuses it",
}


def by_analysis(script: TrainingScript) -> tuple[str, set[tuple[str, int]]]:
    """How the analysis has a step make its batch, and where."""
    if script.loaders:
        return "loaders", {(each.source.path.name, each.node.lineno) for each in script.loaders}
    if script.draws:
        sized = {(each.source.path.name, each.node.lineno) for each in script.draws if each.size is not None}
        return "by hand", sized
    if any(each.columns for each in script.wholes):
        return "columns", set()
    return "all data" if script.wholes else "none", set()


def by_graph(found: Sources) -> tuple[str, set[tuple[str, int]]]:
    """How the graph has it."""
    if found.training:
        return "loaders", {(each.source.path.name, each.node.lineno) for each in found.training}
    if found.axis:
        return "columns", set()
    if found.batches:
        return "by hand", {(each.source.path.name, getattr(each.node, "lineno", 0)) for each in found.batches}
    return "all data" if found.wholes else "none", set()


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda each: each.name)
def test_both_find_the_same_sources(folder: Path) -> None:
    entry = tomllib.loads((folder / "fixture.toml").read_text()).get("entry", "train.py")
    project = Project.load(folder / "before" / entry)
    old, where = by_analysis(analyze(project, Config()))
    new, there = by_graph(sources(trace(project, FACTS), FACTS))
    alike = old == new and (not where or where == there)
    assert alike == (folder.name not in DIFFERENT), (old, where, new, there)
