"""Parts of a module that some training steps leave out: DistributedDataParallel would wait for their gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Interpreter, once_a_run
from autodist.models.in_lists import picks, repeats_at_random
from autodist.models.outputs import leaves_auxiliary, leaves_pooled
from autodist.models.parts import parts_of
from autodist.models.reading import called_parts, is_settled, own_parts
from autodist.solve.learned import learned
from autodist.source import walk
from autodist.values import Object


def is_sometimes(parts: Iterable[Object], run: Interpreter) -> bool:
    """Whether parameters of a module, the first of some parts, may have no gradient after a step."""
    module, *_ = parts = list(parts)
    if learned(run.runs.program).leaves(module.node, _frozen(run)):
        return True
    return any(leaves_auxiliary(part, run) or leaves_pooled(part) for part in parts)


def runs_by_chance(module: Object, run: Interpreter) -> bool:
    """Whether parts of a module may run in one step and not in another."""
    return learned(run.runs.program).varies(module.node, _frozen(run))


@once_a_run
def _frozen(run: Interpreter) -> frozenset[ast.AST]:
    """Where modules are made of which parameters are frozen."""
    frozen = (thing for event in run.of("freeze") for thing in event.value.things)
    return frozenset(part.node for thing in frozen for part in parts_of(thing))


def chooses_parts(module: Object, run: Interpreter) -> bool:
    """Whether it is drawn, or told by an index, which parts of a module run, or how often."""
    return repeats_at_random(module, run) or picks(module, run)


def branches(module: Object, run: Interpreter) -> Iterator[ast.If | ast.IfExp]:
    """Conditions within forward that decide which parts of a module run, and may change from step to step."""
    names = own_parts(module)
    for function in module.functions("forward"):
        for branch in walk(function.node):
            if isinstance(branch, ast.IfExp) and not is_settled(branch.test, module):
                if called_parts([branch.body], names, run) != called_parts([branch.orelse], names, run):
                    yield branch
            if isinstance(branch, ast.If) and not is_settled(branch.test, module):
                called = [called_parts(block, names, run) for block in (branch.body, branch.orelse)]
                left = any(isinstance(n, (ast.Continue, ast.Return)) for s in branch.body for n in walk(s))
                if called[0] != called[1] or left and names:
                    yield branch
