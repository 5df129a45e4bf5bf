"""What is shown, saved or handed to a scheduler as that of all samples, and is one rank's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.placement import Partial, PerRank
from autodist.program import Operation, Value, held
from autodist.ranks.reading import RANK_0, RANK_1, Ranks
from autodist.ranks.ways import Ways
from autodist.rule import Severity
from autodist.script import Concern
from autodist.solve.alone import Alone
from autodist.solve.demands import Demand, demands
from autodist.source import all_of, shortened

BY_RANK = re.compile(r"rank|gpu|device|proc", re.IGNORECASE)
LOGGING = frozenset("info debug log add_scalar add_scalars log_metrics log_metric report".split())
WARNINGS = ("warning", "warn", "error", "exception")
PROGRESS = frozenset("print log write tracker handed".split())
KINDS = {"schedule": "decides over the learning rate", "save": "is saved", "test": "decides what is saved"}


def concerns(ranks: Ranks, ways: Ways) -> Iterator[Concern]:
    """Values that are demanded to be those of all ranks, and are a rank's own."""
    told = set[ast.AST]()
    for demand in demands(ranks.program, Alone()):
        operation = demand.operation
        if not _is_shown(demand, ranks) or _is_progress(demand, ranks):
            continue
        for value in operation.operands if demand.kind != "test" else [Value(frozenset([operation]))]:
            own = ranks.own(value)
            if own is None or own.node in told or _tells_rank(operation, ranks):
                continue
            if demand.kind in PROGRESS and ranks.is_of_step(own):
                continue
            told.add(own.node)
            yield _concern(demand, own, ranks)


def _is_shown(demand: Demand, ranks: Ranks) -> bool:
    operation = demand.operation
    if operation.name.rpartition(".")[2] in WARNINGS:  # something is amiss on this rank
        return False
    if demand.kind == "handed":
        return operation.name.rpartition(".")[2] in LOGGING
    if demand.kind == "test":
        source = operation.source
        branch = next(
            (each for each in source.ancestors(operation.node) if isinstance(each, (ast.If, ast.While))), None
        )
        saved = {effect.operation.node for effect in ranks.program.of("save")}
        return isinstance(branch, ast.If) and any(
            call in saved for each in branch.body for call in all_of(each, ast.Call)
        )
    return demand.kind != "write" or operation.name.rpartition(".")[2] == "dump"


def _is_progress(demand: Demand, ranks: Ranks) -> bool:
    """Whether it shows from step to step how a rank gets on, as many scripts do on purpose."""
    loops = ranks.loops(demand.operation.region)
    return demand.kind in PROGRESS and bool(loops & ranks.step_loops)


def _tells_rank(operation: Operation, ranks: Ranks) -> bool:
    """Whether a text says whose number it is: `print(f"[rank {rank}] {loss}")`"""
    statement = operation.source.statement(operation.node)
    if isinstance(statement, ast.Expr) and BY_RANK.search(operation.source.code(statement)):
        return True
    if "file" in operation.keywords and isinstance(ranks.placements.value(operation.keywords["file"]), PerRank):
        return True
    given = (Value(frozenset([each])) for value in operation.operands for each in held(value))
    return any(ranks.evaluated(each, RANK_0) != ranks.evaluated(each, RANK_1) for each in given)


def _concern(demand: Demand, own: Operation, ranks: Ranks) -> Concern:
    placement = ranks.placements.of[own]
    kind = placement.reduce if isinstance(placement, Partial) else "sum"
    code = shortened(own.source.code(own.node)) if isinstance(own.node, ast.expr) else "a value"
    line = getattr(own.node, "lineno", 0)
    how = "AVG" if kind == "mean" else kind.upper()
    remedy = f"dist.all_reduce(..., op=dist.ReduceOp.{how}) first"
    if kind == "mean":
        remedy = "dist.all_reduce it first and divide by the number of ranks, or sum what it is computed of"
    what = KINDS.get(demand.kind, "is shown")
    message = (
        f"{code} (line {line}) is computed of this rank's samples alone, and {what} as if of all: the sampler has "
        f"given each rank its share; {remedy}"
    )
    return Concern("AD610", demand.operation.source, demand.operation.node, message, Severity.WARNING)
