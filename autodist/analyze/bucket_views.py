"""Whether gradients may lie in the buckets that DistributedDataParallel reduces, which saves copying them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autodist.interpreter import Interpreter
from autodist.program import Program
from autodist.script import Model, Wrapping
from autodist.solve.kept_gradients import keeps_gradients

LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def in_buckets(run: Interpreter, models: Sequence[Model]) -> bool:
    """Whether no gradient is kept, and no parameter can be in two wrappers: those of one model, wrapped once."""
    program = run.runs.program
    trained = [model for model in models if not model.wrapped and not model.bypassed]
    if not trained or any(model.wrapping is not None and model.wrapping.each for model in trained):
        return False
    places = {_place(model) for model in trained}
    given = [site.node for model in trained for site in (*model.data_parallel, *model.fully_sharded, *model.partial)]
    if any(model.wrapping is not None and _is_made_in_loop(model.wrapping) for model in trained):
        return False
    if len(places) > 1 or len(set(given)) > 1 or not all(_is_made_once(each, program) for each in given):
        return False
    return program.complete and not keeps_gradients(program, run.project.sources)


def _is_made_in_loop(wrapping: Wrapping) -> bool:
    """Whether a model is wrapped in the argument of a call that a loop repeats: it may be the same module each time."""
    return wrapping.unnamed and any(isinstance(each, LOOPS) for each in wrapping.source.ancestors(wrapping.target))


def _place(model: Model) -> tuple[ast.AST, str]:
    """Where a model is wrapped, and by which name: one of several that branches choose from stands in their place."""
    wrapping = model.wrapping
    if wrapping is None or wrapping.unnamed:
        return (model.object.node if wrapping is None else wrapping.target), ""
    return wrapping.statement, ast.unparse(wrapping.target)


def _is_made_once(call: ast.AST, program: Program) -> bool:
    """Whether a call is run once, so that no module is given to two wrappers."""
    regions = [each.region for each in program.made_at.get(call, ())]
    return len(regions) < 2 and not any(each.loops or any(r.others for r in each.around()) for each in regions)
