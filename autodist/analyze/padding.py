"""What is said of batches that are filled up to the longest sample, where losses depend on how far that is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise

from autodist.interpreter import Interpreter
from autodist.placement import padded
from autodist.program import Operation, closure
from autodist.rule import Severity
from autodist.script import Concern
from autodist.solve.losses import Losses
from autodist.solve.padding import lost_at, padding
from autodist.solve.steps import given
from autodist.source import last_name, shortened

TO_FIXED = "pad to a fixed length"
WHAT_TO_DO = {
    padded.COUNTED: f"leave the padding out (a mask, ignore_index), or {TO_FIXED}",
    padded.LENGTH: f"divide by how long each sample is, or {TO_FIXED}",
    padded.SHARE: f"mask the padding, or {TO_FIXED}",
    padded.BACKWARDS: f"pack the samples (pack_padded_sequence), or {TO_FIXED}",
    padded.STATE: f"pack the samples (pack_padded_sequence), or {TO_FIXED}",
    padded.LAST: f"take the place that each sample's own length tells, or {TO_FIXED}",
    padded.REACHES: f"set what stands in padded places to zero before it, or {TO_FIXED}",
    padded.STATISTIC: TO_FIXED,
}


def concerns(run: Interpreter, losses: Losses) -> Iterator[Concern]:
    """Where a loss comes to depend on the length that a rank's own samples are filled up to, which is another one than
    that of one process."""
    sources = padding(run.runs.program, losses.placements)
    if not sources:
        return
    for operation, reason in lost_at(run.runs.program, sources, losses.ends, run.catalog):
        code = shortened(operation.source.code(operation.node)) if isinstance(operation.node, ast.expr) else ""
        above = closure([operation], given) & sources.keys()
        names = _names(sorted(above or sources, key=lambda op: op.number))
        pads = f"{names} pads to the longest sample, a rank to that of its own"
        if reason in WHAT_TO_DO:
            message = f"{code} {reason}: {pads}, so that results differ from those of one process; {WHAT_TO_DO[reason]}"
        else:
            message = (
                f"cannot tell whether {code} leaves the padding out: {pads}, so that results differ from those of one "
                f"process if it does not; tell it where the padding is, or {TO_FIXED}"
            )
        yield Concern("AD602", operation.source, operation.node, message, Severity.WARNING)
        return


def _names(sources: Iterable[Operation]) -> str:
    """What the functions are called that fill samples up."""
    found: dict[str, None] = {}
    for each in sources:
        own = f"{last_name(each.node.func)}()" if isinstance(each.node, ast.Call) else "the script"
        found[_collation(each) or own] = None
    return " or ".join(found)


def _collation(operation: Operation) -> str:
    """The name of the function by which a loader lays samples together that an operation is a part of, if it is."""
    around = [*operation.region.around()]
    inner = next((one for one, outer in pairwise(around) if outer.kind == "collate"), None)
    function = inner.function if inner is not None else None
    if inner is None or not isinstance(function, ast.FunctionDef):
        return "collate_fn" if any(each.kind == "collate" for each in around) else ""
    above = inner.source.parents.get(function)
    named = above if isinstance(above, ast.ClassDef) and function.name in ("__call__", "__init__") else function
    return f"{named.name}()"
