"""The sources and cuts of all fixtures beside what today's analysis finds, which they are to replace: the loaders that
train, the batches that a step makes by hand, and the values that are made global because they are shown.

Each fixture whose sources differ is listed, with the reason, and each in which a value that the analysis makes global
is the same on all ranks by the placements: that would be a silent error."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from autodist import catalog
from autodist.analyze import analyze
from autodist.config import Config
from autodist.placement import Partial, Replicate, Shard
from autodist.placement.propagate import propagate
from autodist.program import held
from autodist.project import Project
from autodist.script import TrainingScript
from autodist.solve.alone import Alone
from autodist.solve.cuts import as_reported, solved
from autodist.solve.search import Cut
from autodist.solve.sources import Sources, sources
from autodist.trace import trace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FACTS = catalog.load()
FIXTURES = sorted(path.parent for path in ROOT.glob("fixtures/*/before") if "refused" not in path.parent.name)
DIFFERENT = {
    "full_batch_words": "sentences are picked by drawn numbers; the analysis shares out what they are made to",
    "config_registry": "a loader of a class of the project's own; the analysis finds where that calls DataLoader",
    "full_batch_graph": "the numbers of samples are made once; the analysis takes them for a draw of each step",
    "lm_states_batch_first": "slices of all rows, as in char_rnn_get_batches; the analysis shares out the data instead",
    "sequences_first_noise": "shared out along the second axis; the analysis refuses it",
}

UNSEEN = {
    "config_registry": "see above: other loaders train",
    "trainer_other_module": "one call makes all loaders, and nothing tells them apart: the analysis shares out all",
}
"""Fixtures in which placements call a value replicated that the analysis makes global, and why."""
MADE_GLOBAL_ELSEWHERE = frozenset("""
    class_in_settings config_registry contrastive_inbatch
    counts_by_label crops_told_apart dropout_drawn_batches full_batch_classes
    generator_of_batches images_augmented_together kept_by_sample
    lbfgs_closure lbfgs_line_search lm_net_by_option loader_class_get_iterator loader_dict_phases
    losses_of_the_whole_batch memory_of_samples meters_by_name
    model_by_eval model_factory_arch model_named_by_option momentum_queue
    multi_file_engine nanogpt_get_batch odd_training_set
    package_relative_imports picked_by_class random_split_unseeded samples_at_the_end samples_by_place
    sequences_first_noise trainer_other_module transformer_lm_tied_warmup
    writer_by_getattr
    """.split())
"""Fixtures in which the cuts are others: some cheaper, some of values that are not followed yet."""


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


def kinds(script: TrainingScript) -> dict[ast.expr, str]:
    """What the analysis makes global, and how."""
    return {each.node: each.spread.name for each in script.reductions}


def kind(cut: Cut) -> str:
    """How it is made global, in the words of the analysis."""
    placement = cut.placement
    if isinstance(placement, Partial):
        word = {"sum": "SUM", "mean": "MEAN", "max": "MOST", "min": "LEAST"}[placement.reduce]
        return "COUNT" if placement.reduce == "sum" and placement.weight else word
    return "ROWS" if isinstance(placement, Shard) else "LOCAL"


@pytest.mark.parametrize("folder", FIXTURES, ids=lambda each: each.name)
def test_both_find_the_same(folder: Path) -> None:
    entry = tomllib.loads((folder / "fixture.toml").read_text()).get("entry", "train.py")
    project = Project.load(folder / "before" / entry)
    script, program = analyze(project, Config()), trace(project, FACTS)
    given = sources(program, FACTS)
    old, where = by_analysis(script)
    new, there = by_graph(given)
    alike = old == new and (not where or where == there)
    assert alike == (folder.name not in DIFFERENT), (old, where, new, there)
    placements = as_reported(program, given.plan, FACTS)
    made_global = {each: Replicate() for each in placements.of if each.name.endswith((".item", ".argmax", ".sum"))}
    plan = replace(given.plan, placed={**given.plan.placed, **made_global})
    again = propagate(program, plan, catalog=FACTS, before=placements)
    assert again.of == propagate(program, plan, catalog=FACTS).of  # placed anew is only what depends on that
    guards = Alone(frozenset(each.node for each in script.guards))
    found = {} if script.distributed else {each.node: kind(each) for each in solved(program, given.plan, FACTS, guards)}
    unseen = [
        each.source.code(each.node)
        for each in script.reductions
        if all(placements.of.get(op, Replicate()) == Replicate() for op in held(program.at(each.node)))
    ]
    assert bool(unseen) == (folder.name in UNSEEN), unseen
    assert (found == kinds(script)) == (folder.name not in MADE_GLOBAL_ELSEWHERE), (found, kinds(script))
