"""Sums over a rank's samples that a loss adds to means, or to what every rank has: `cross_entropy(x, y) + kl.sum()`.

Averaged over the ranks, a mean stays what it is and a sum is one N-th of that of the batch. N times as large, it is a
term like the others, and the loss a mean over the ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from autodist.interpreter import Interpreter, Plan
from autodist.losses.batchwise import is_settled
from autodist.losses.scaling import IN_TRAINING
from autodist.origins import learnt_from
from autodist.script import Reduction
from autodist.spread import SUM

ROUNDS = 4
"""`recognition + divergence + penalty` adds one after the other."""


def terms(before: Interpreter, run: Callable[[Plan], Interpreter], plan: Plan) -> tuple[Reduction, ...]:
    """The sums that are to be multiplied by the number of ranks, where that makes losses exact; in training alone
    where evaluation, in which every rank has all data, comes to the same place."""
    found: dict[ast.expr, Reduction] = {}
    current = before
    for _ in range(ROUNDS):
        learnt = learnt_from(current)
        sums = {e.node: e.source for e in current.of("summed_term") if not learnt.isdisjoint(ast.walk(e.node))}
        fresh = {n: Reduction(source, n, SUM) for n, source in sums.items() if isinstance(n, ast.expr)}
        if fresh.keys() <= found.keys():
            break
        found |= fresh
        current = run(replace(plan, terms=frozenset(found)))
    others = current.of("whole_term")
    if not found or any(event.grad for event in others) or not _unsettled(current) < _unsettled(before):
        return ()
    evaluated = {event.node for event in others}
    return tuple(replace(each, switch=IN_TRAINING if node in evaluated else None) for node, each in found.items())


def _unsettled(run: Interpreter) -> set[ast.AST]:
    return {event.node for event in run.of("backward") if not is_settled(event, run)}
