"""Numbers of a rank's samples that were made before a step, and that it computes its loss from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.escapes.origins import learnt_from
from autodist.interpreter import Event, Interpreter
from autodist.source import Source
from autodist.spread import LOCAL, MEAN, SUM
from autodist.values import NOTHING


def brought_in(run: Interpreter) -> Iterator[tuple[Event, ast.expr]]:
    """The names by which a training step uses what earlier loops made of a rank's samples, and no gradient flows
    through: `centroids` of `torch.cdist(h, centroids)` after `centroids = sums / counts`. All ranks need that of all.
    """
    steps = {event.loops[-1].node: event for event in run.of("backward") if event.loops}
    learnt = learnt_from(run)
    for node in (each for each in run.values if each in learnt):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node in run.plan.reduced:
            continue
        value = run.values.get(node, NOTHING)
        if value.spread not in (MEAN, SUM, LOCAL) or value.models or value.things or not value.made:
            continue
        source = run.sources[node]
        step = next((each for each in source.ancestors(node) if each in steps), None)
        if step is not None and all(_is_earlier(made, where, step, source, run) for where, made in value.made):
            yield replace(steps[step], kind="statistic", node=node, source=source), node


def _is_earlier(made: ast.expr, where: Source, step: ast.AST, source: Source, run: Interpreter) -> bool:
    """Whether an expression is computed outside of the loop of a step, nor by what that calls."""
    loops = {loop for each in ast.walk(made) if isinstance(each, ast.expr) for loop in run.loops_of.get(each, ())}
    around = set(source.ancestors(step))
    apart = where is source and where.home(made) is source.home(step) and step not in where.ancestors(made)
    return loops <= around or apart
