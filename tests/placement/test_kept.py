"""Placements under a plan that differs little from one of the last: what does not depend on the difference is kept."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from conftest import ROOT
from programs import CATALOG

from autodist.placement import Placement, Replicate
from autodist.placement.kept import Kept
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import Propagation, propagate
from autodist.placement.shapes import Sizes
from autodist.program import Operation, Program
from autodist.project import Project
from autodist.solve.sources import sources
from autodist.trace import trace

result = Propagation._result
SCRIPTS = "gan_two_optimizers memory_of_samples vae_early_stopping images_augmented_together ema_own_class".split()


def anew(program: Program, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Placements:
    """The placements, as if no other plan had been tried before."""
    with monkeypatch.context() as patch:
        patch.setattr("autodist.placement.propagate.KEPT", Kept())
        return propagate(program, plan, catalog=CATALOG)


@pytest.mark.parametrize("script", SCRIPTS)
def test_as_placed_anew(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = trace(Project.load(ROOT / "fixtures" / script / "before" / "train.py"), CATALOG)
    plan = sources(program, CATALOG).plan
    draw = random.Random(script)
    apart = [op for op, lying in propagate(program, plan, catalog=CATALOG).of.items() if lying != Replicate()]
    assert apart
    for _ in range(6):
        placed = dict.fromkeys(draw.sample(apart, min(3, len(apart))), Replicate())
        other = replace(plan, placed={**plan.placed, **placed})
        kept, fresh = propagate(program, other, catalog=CATALOG), anew(program, other, monkeypatch)
        assert (kept.of, kept.sizes, kept.sample_loops) == (fresh.of, fresh.sizes, fresh.sample_loops)


@pytest.mark.parametrize("script", SCRIPTS)
def test_plans_that_share_out_or_count_something_else(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked of the last plan tells what another one changes."""
    program = trace(Project.load(ROOT / "fixtures" / script / "before" / "train.py"), CATALOG)
    found = sources(program, CATALOG)
    whole = replace(found, training=frozenset(), batches=frozenset())
    uncounted = replace(found, rows=frozenset())
    for other in (found, whole, found, uncounted, whole, uncounted, found):
        kept, fresh = propagate(program, other.plan, catalog=CATALOG), anew(program, other.plan, monkeypatch)
        assert (kept.of, kept.sizes, kept.sample_loops) == (fresh.of, fresh.sizes, fresh.sample_loops)


def test_plans_are_asked_of_what_they_change_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    program = trace(Project.load(ROOT / "fixtures" / SCRIPTS[0] / "before" / "train.py"), CATALOG)
    found, placed = sources(program, CATALOG), list[Operation]()

    def noted(propagation: Propagation, operation: Operation) -> tuple[Placement | None, Sizes]:
        placed.append(operation)
        return result(propagation, operation)

    monkeypatch.setattr(Propagation, "_result", noted)
    for other in (found, replace(found, rows=frozenset()), replace(found, steps=frozenset())):
        placed.clear()
        propagate(program, other.plan, catalog=CATALOG)
    assert len(placed) < len(program.operations) / 4
