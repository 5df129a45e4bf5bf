"""What was measured fills what reading left open, where that leaves fewer doubts, and is said."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from autodist import catalog
from autodist.config import Config
from autodist.observations import Measured
from autodist.placement import Replicate
from autodist.placement.lattice import is_guessed
from autodist.placement.measured import differing, located
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Operation
from autodist.project import Project
from autodist.rule import Severity
from autodist.script import Concern, TrainingScript
from autodist.solve.losses import Losses
from autodist.solve.sources import sources
from autodist.source import Source, shortened
from autodist.trace import trace


def with_measured(
    script: TrainingScript, project: Project, config: Config, read: Callable[[catalog.Catalog], TrainingScript]
) -> TrainingScript:
    """The semantic model, with what was measured where reading alone leaves doubts; and where both know how a value
    lies, and differ, that. What reading alone makes exact stays as it is: runs of a few steps may not show all that a
    function does."""
    found, _ = located(config.measured, project)
    if not found:
        return script
    facts = catalog.load(config.catalog, config.operations)
    program = trace(project, facts)
    if not program.complete:
        return script
    plan = sources(program, facts).plan
    before = propagate(program, plan, catalog=facts)
    faults = tuple(_faults(found, {node: program.at(node).operations for node in found}, before, project))
    facts.measured = found
    used = {op.node for op in propagate(program, plan, catalog=facts).measured}
    facts.measured = {node: each for node, each in found.items() if node in used}
    left = script.unread & used
    if left or used and doubts(script):
        other = read(facts)
        if (
            other.trains > script.trains
            or other.trains == script.trains
            and (left or len(doubts(other)) < len(doubts(script)))
        ):
            script = other if doubts(script) else _as_notes(other, facts.measured)
    return replace(script, concerns=(*script.concerns, *faults))


def _as_notes(script: TrainingScript, measured: Mapping[ast.AST, Measured]) -> TrainingScript:
    """The same, where reading alone has taken for granted, and told nobody, what was measured now: that samples are
    left apart."""
    apart = {node for node, each in measured.items() if each.lies == "rows"}
    concerns = (
        replace(e, severity=Severity.NOTE) if e.code == "AD612" and e.node in apart else e for e in script.concerns
    )
    return replace(script, concerns=tuple(concerns))


def doubts(script: TrainingScript) -> list[object]:
    """What is not known, or not exact, or cannot be converted."""
    told = [each for each in script.concerns if each.severity is not Severity.NOTE and each.code != "AD612"]
    return [*told, *script.pieces]


def unread(losses: Losses) -> Iterator[ast.AST]:
    """What is computed in a way that is not known, and taken to leave samples apart if losses are computed from it."""
    yield from (each.node for each in losses.assumed)
    yield from (op.node for op, lying in losses.placements.of.items() if is_guessed(lying))


def relied_on(losses: Losses, facts: catalog.Catalog) -> Iterator[Concern]:
    """What was measured, and decides how losses and reported values lie once everything is made global that is."""
    used = {op.node: op for op in losses.placements.measured}
    for node, op in used.items():
        each = facts.measured[node]
        code = shortened(op.source.code(node)) if isinstance(node, ast.expr) else ""
        if each.lies != "mixed":
            message = (
                f"{code} is {each}: measured, {each.occurrences} times in {each.steps} steps, and not read: what it "
                "does on other samples is not known"
            )
            yield Concern("AD612", op.source, node, message, Severity.WARNING)
        elif any(one.node is node for one in losses.placements.measured & losses.steps.differentiated):
            by = f" ({each.mixes})" if each.mixes else ""
            message = f"{code} mixes the samples of a batch, as measured{by}: results differ from those of one process"
            yield Concern("AD602", op.source, node, message, Severity.WARNING)


def _faults(
    found: Mapping[ast.AST, Measured],
    made: Mapping[ast.AST, frozenset[Operation]],
    before: Placements,
    project: Project,
) -> Iterator[Concern]:
    for node, each in found.items():
        lying = [before.of.get(op, Replicate()) for op in made[node]]
        said, source = differing(each, lying), _source(node, project)
        if said is not None and source is not None and isinstance(node, ast.expr):
            message = (
                f"{shortened(source.code(node))} is measured to be {each}, and reading takes it for `{said}`: a fault "
                "of autodist, please report it; results may differ from those of one process"
            )
            yield Concern("AD602", source, node, message, Severity.WARNING)


def _source(node: ast.AST, project: Project) -> Source | None:
    return next((each for each in project.sources if node in each.parents), None)
